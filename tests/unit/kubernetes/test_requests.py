"""Requests to the API server whose connection ends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from firesteel_kubernetes.access import ApiServerAccess, FixedCredentials
from firesteel_kubernetes.api import KubernetesApi, UnansweredError


def test_a_request_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    api, is_waiting = KubernetesApi(ApiServerAccess("http://kubernetes", None, FixedCredentials())), threading.Event()

    async def wait_for_ever() -> dict[str, str]:
        is_waiting.set()
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(api, "_headers", wait_for_ever)
    with ThreadPoolExecutor(1) as threads:
        request = threads.submit(api.ask, "GET", "/api/v1/namespaces/default/pods")
        assert is_waiting.wait(30)
        api.close()
        with pytest.raises(UnansweredError, match="was closed"):
            request.result(30)
