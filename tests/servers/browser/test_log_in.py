"""A cluster that shows itself to nobody without its token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.services.dispatcher_world import run, world
from tests.servers.browser.chromium import Chromium
from tests.servers.browser.walk import axe_faults

pytestmark = pytest.mark.may_skip(reason="Chromium can be installed by root on Debian only")
TOKEN = "a token of the operator's own"


def test_nothing_is_shown_before_the_token_is_there(program: str, axe: Path, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)

    def look(url: str) -> None:
        browser = Chromium(program)
        try:
            browser.open(url)
            assert "only to those who have its token" in browser.text("[data-dialog=login] p")
            assert "words" not in browser.text("body")
            assert axe_faults(browser, axe, "dialog") == []
            browser.type("[data-dialog=login] input", TOKEN)
            browser.press("[data-confirm=log-in]")
            assert browser.text("table[data-name=running] tr[data-row] td") == "words"
            storage = browser.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
            assert TOKEN not in storage
            browser.reload()
            assert "only to those who have its token" in browser.text("[data-dialog=login] p")
        finally:
            browser.close()

    async def scenario() -> None:
        async with world(options={"firesteel.rest.token-file": str(path)}) as w:
            await w.submit()
            await asyncio.to_thread(look, w.service.rest.address)

    run(scenario())
