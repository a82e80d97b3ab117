"""A real browser: Chromium without a window, driven over its debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120.0
"""Seconds that a page may take: long, as only a fault makes one wait for it."""
_CUT = (
    "[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1"
    " && ['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX)).map(e => e.outerHTML.slice(0, 200))"
)
"""Elements of which a part is out of sight; those of a heading for screen readers have no size."""
_MEASURED = f"[document.documentElement.scrollWidth, innerWidth, document.documentElement.outerHTML, {_CUT}]"


@dataclass(slots=True)
class Seen:
    """A page as it was drawn."""

    html: str = ""
    width: int = 0
    """Pixels that it takes."""
    screen: int = 0
    """Pixels that there are."""
    cut: list[str] = field(default_factory=list)
    """Elements that show a part of themselves only."""
    picture: bytes = b""
    """PNG of the whole page."""
    problems: list[str] = field(default_factory=list)
    """What the browser wrote to its console, dialogs that a script opened, and requests that failed."""
    requested: list[str] = field(default_factory=list)


def look(address: str, folder: Path, width: int, *, phone: bool = False) -> Seen:
    """Open a page in a fresh browser, whose profile is in a folder."""
    assert CHROMIUM
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
    ]
    command += [f"--user-data-dir={folder}", "--no-first-run", "--disable-dev-shm-usage", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        patience = threading.Timer(2 * PATIENCE, process.kill)
        patience.start()
        try:
            port = _port(process)
            return asyncio.run(asyncio.wait_for(_look(port, address, width, phone=phone), PATIENCE))
        finally:
            patience.cancel()
            _end(process)


def _port(process: subprocess.Popen[str]) -> int:
    """The port that the browser says it listens on; what it says later is read by `_end`."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"listening on ws://[^:]+:(\d+)/", line):
            return int(found[1])
    raise AssertionError("the browser ended before it listened")


def _end(process: subprocess.Popen[str]) -> None:
    """Have it end its helpers too, which write to its profile."""
    process.terminate()
    try:
        process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()


async def _look(port: int, address: str, width: int, *, phone: bool) -> Seen:
    seen = Seen()
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as made:
            target = (await made.json(content_type=None))["webSocketDebuggerUrl"]
        async with session.ws_connect(target, max_msg_size=1 << 26) as socket:
            tab = _Tab(socket, seen)
            for domain in ("Page", "Runtime", "Log", "Network"):
                await tab.ask(f"{domain}.enable")
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone}
            await tab.ask("Emulation.setDeviceMetricsOverride", **size)
            await tab.ask("Page.navigate", url=address)
            await tab.wait_for("Page.loadEventFired")
            measured = await tab.ask("Runtime.evaluate", expression=_MEASURED, returnByValue=True)
            seen.width, seen.screen, seen.html, seen.cut = measured["result"]["value"]
            shot = await tab.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
            seen.picture = base64.b64decode(shot["data"])
    return seen


class _Tab:
    """Commands and events of one page; what goes wrong on it is noted."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, seen: Seen) -> None:
        self._socket = socket
        self._seen = seen
        self._number = 0
        self._events: set[str] = set()

    async def ask(self, method: str, **parameters: object) -> Any:
        """Send a command; return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == self._number:
                assert "result" in message, message
                return message["result"]

    async def wait_for(self, event: str) -> None:
        """Read until an event has come."""
        while event not in self._events:
            await self._next()

    async def _next(self) -> Mapping[str, Any]:
        message: Mapping[str, Any] = await self._socket.receive_json()
        method, parameters = message.get("method", ""), message.get("params", {})
        self._events.add(method)
        if method == "Network.requestWillBeSent":
            self._seen.requested.append(parameters["request"]["url"])
        elif method == "Log.entryAdded":
            self._seen.problems.append(parameters["entry"]["text"])
        elif method in {
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
            "Network.loadingFailed",
        }:
            self._seen.problems.append(f"{method}: {parameters}")
        return message
