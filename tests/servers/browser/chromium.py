"""A headless Chromium, driven by its DevTools protocol: no more than the tests of the dashboard need."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from tests.waiting import NotInTimeError

T = TypeVar("T")
ENSURE = Path(__file__).parent / "ensure-chromium.sh"
_SECONDS = 60.0
_CODES = {"Escape": 27, "Enter": 13, "Tab": 9}
_LOOK = """(() => {
    const sees = (one) => one.checkVisibility === undefined || one.checkVisibility();
    const found = %s;
    return found instanceof Element ? true : found;
})()"""


class NotShownError(NotInTimeError):
    """A page does not show in time what it has to."""


class Chromium:
    """A browser with a fresh profile, and one page in it.

    Args:
        program: of the browser.
        width: of the page, in pixels.
        height: of the page, in pixels.
    """

    def __init__(self, program: str, width: int = 1280, height: int = 900) -> None:
        self._loop = asyncio.new_event_loop()
        self._profile = Path(tempfile.mkdtemp(prefix="firesteel-chromium-"))
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._calls, self._page = 0, ""
        self.problems: list[str] = []
        """What the page logged as an error: exceptions, refusals by the content security policy."""
        self.asked: list[str] = []
        """URLs of all requests of the page."""
        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
            "--hide-scrollbars", "--disable-extensions", "--no-proxy-server", f"--user-data-dir={self._profile}",
            "--remote-debugging-port=0", f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        self._log = (self._profile / "log").open("wb")
        environment = {**os.environ, "HOME": str(self._profile), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=environment
        )
        try:
            self._run(self._connect())
            self.size(width, height)
        except BaseException:
            self.close()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, _SECONDS + 5))

    async def _connect(self) -> None:
        file = self._profile / "DevToolsActivePort"
        end = time.monotonic() + _SECONDS
        while not file.exists() or file.read_text().count("\n") < 1:
            if self._process.poll() is not None or time.monotonic() > end:
                raise NotShownError(f"Chromium does not start:\n{(self._profile / 'log').read_text()[-3000:]}")
            await asyncio.sleep(0.05)
        port, path = file.read_text().splitlines()[:2]
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
        targets = await self._send("Target.getTargets")
        (page,) = [target for target in targets["targetInfos"] if target["type"] == "page"]
        attached = await self._send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._page = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._send(f"{domain}.enable")

    async def _send(self, method: str, **parameters: Any) -> Any:
        assert self._socket is not None
        self._calls += 1
        call: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters}
        await self._socket.send_json(call if not self._page else {**call, "sessionId": self._page})
        while True:
            heard = json.loads(await self._socket.receive_str())
            if heard.get("id") == call["id"]:
                if "error" in heard:
                    raise NotShownError(f"{method}: {heard['error']}")
                return heard["result"]
            self._event(heard)

    def _event(self, heard: Any) -> None:
        params = heard.get("params", {})
        match heard.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(str(details.get("exception", {}).get("description", details["text"])))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])

    # -- the page

    def size(self, width: int, height: int) -> None:
        """Of the page, in pixels."""
        self._run(
            self._send(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
        )

    def open(self, url: str) -> None:
        """Go there, with a page that begins anew."""
        self._run(self._send("Page.navigate", url="about:blank"))
        self._run(self._send("Page.navigate", url=url))

    def reload(self) -> None:
        """As by its button."""
        self._run(self._send("Page.reload"))

    def go(self, route: str) -> None:
        """Another page of the dashboard, by its hash."""
        self.evaluate(f"location.hash = {json.dumps(route)}")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; promises are waited for.

        Raises:
            NotShownError: it threw.
        """
        answer = self._run(self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True))
        if "exceptionDetails" in answer:
            raise NotShownError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = _SECONDS) -> Any:
        """The value of an expression as soon as it is true.

        Raises:
            NotShownError: it does not become true.
        """
        end, last = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                value = self.evaluate(_LOOK % expression)
            except NotShownError as error:  # what it looks into is not there yet
                value, last = None, str(error)
            if value:
                return value
            self._run(asyncio.sleep(0.05))
        text = self.evaluate("document.body.innerText")
        raise NotShownError(f"not in {seconds:g} s: {expression}\n{last}\nThe page says:\n{text}\n{self.problems}")

    def text(self, selector: str) -> str:
        """What an element shows, as soon as there is one."""
        return str(self.wait(f"document.querySelector({json.dumps(selector)})?.innerText"))

    def press(self, selector: str) -> None:
        """Click on an element as soon as it is there and can be used."""
        self.wait(
            f"[...document.querySelectorAll({json.dumps(selector)})].filter((one) => sees(one) && !one.disabled)"
            ".slice(0, 1).map((one) => (one.scrollIntoView({block: 'center'}), one.click(), true))[0]"
        )

    def type(self, selector: str, text: str) -> None:
        """Write into a field, as a keyboard would; once more if a dialog that opens has taken the focus meanwhile."""
        element = f"document.querySelector({json.dumps(selector)})"
        for _ in range(20):
            self.wait(f"{element} && ({element}.focus(), {element}.select?.(), true)")
            self._run(self._send("Input.insertText", text=text))
            if self.evaluate(f"{element}.value") == text:
                return
        raise NotShownError(f"{selector} does not take what is written into it")

    def key(self, key: str) -> None:
        """Press and release a key."""
        code = _CODES.get(key, ord(key[0].upper()))
        for kind in ("keyDown", "keyUp"):
            written = {"Enter": "\r"}.get(key, key)  # a button is pressed by the character
            text = {"text": written} if kind == "keyDown" and len(written) == 1 else {}
            self._run(self._send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text))

    def choose_file(self, selector: str, path: Path) -> None:
        """Give a file to an input."""
        self.wait(f"document.querySelector({json.dumps(selector)})")
        document = self._run(self._send("DOM.getDocument"))
        node = self._run(self._send("DOM.querySelector", nodeId=document["root"]["nodeId"], selector=selector))
        self._run(self._send("DOM.setFileInputFiles", files=[str(path)], nodeId=node["nodeId"]))

    def media(self, scheme: str) -> None:
        """What the system prefers: ``light`` or ``dark``; still pictures in any case."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._run(self._send("Emulation.setEmulatedMedia", features=features))

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """The page as it is seen, or the whole of it: PNG or WebP, as the name of the file says."""
        how: dict[str, Any] = {"format": "webp", "quality": 88} if path.suffix == ".webp" else {"format": "png"}
        how["captureBeyondViewport"] = whole
        data = self._run(self._send("Page.captureScreenshot", **how))["data"]
        path.write_bytes(base64.b64decode(data))

    def shot(self, name: str) -> None:
        """A picture for people, where a folder for it is named."""
        if folder := os.environ.get("FIRESTEEL_TEST_SCREENSHOTS"):
            self.evaluate("new Promise((done) => setTimeout(done, 300))")
            self.screenshot(Path(folder) / f"{name}.png")

    def close(self) -> None:
        """End the browser; nothing of it stays. Idempotent."""
        if self._loop.is_closed():
            return
        with suppress(Exception):
            self._page = ""
            self._loop.run_until_complete(asyncio.wait_for(self._send("Browser.close"), 3))
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        if self._session is not None:
            self._loop.run_until_complete(self._session.close())
        self._loop.close()
        self._log.close()
        shutil.rmtree(self._profile, ignore_errors=True)
