# SPDX-License-Identifier: Apache-2.0
"""Pages as a reader sees them: a headless Chromium, driven over a pipe. Used by tests that look at pages.

    with browser.session() as chromium:
        page = chromium.open(file, width=390, height=844, dark=True, touch=True)
        page.value("document.title")          # what a JavaScript expression gives, as JSON
        page.tap(100, 200)
        page.screenshot(picture)
        assert page.complaints == []          # exceptions, console errors, and what the page fetched but for its file

Where there is no Chromium, `missing()` says why, and a test is reported as not run. The pipe speaks the Chrome DevTools
Protocol: one JSON object after another, each with a zero byte behind it, over the descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Browser", "Page", "fixture", "missing", "session"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Moves the pipe's ends to the descriptors that the browser reads and writes; out of the way first.
STARTER = """import fcntl, os, sys
ends = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])"""
PATIENCE_S = 60  # a first start on a busy machine takes seconds


@functools.cache
def program() -> tuple[str, str]:
    """The browser, or an empty string and why there is none."""
    tried = []
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            continue
        try:  # Ubuntu's `chromium-browser` is a script that wants a snap
            out = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PATIENCE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            tried.append(f"{path}: {error}")
            continue
        if out.returncode == 0 and "chrom" in out.stdout.lower():
            return path, ""
        tried.append(f"{path}: {(out.stderr or out.stdout).strip().splitlines()[:1]}")
    return "", "; ".join(tried) or "apt-get install chromium"


def missing() -> str:
    """Empty when pages can be looked at here; else why not."""
    path, why = program()
    return "" if path else f"no browser: {why}"


@pytest.fixture(scope="module", name="chromium")
def fixture() -> Iterator[Browser]:
    """One browser for the tests of a module that says `from tests.browser import fixture`."""
    if why := missing():
        pytest.skip(f"not run: {why}")
    with session() as browser:
        yield browser


@contextlib.contextmanager
def session() -> Iterator[Browser]:
    """A running browser; it ends with the block."""
    path, why = program()
    if not path:
        raise RuntimeError(f"no browser: {why}")
    with tempfile.TemporaryDirectory(prefix="gda-browser-", ignore_cleanup_errors=True) as profile:
        browser = Browser(path, profile)
        try:
            yield browser
        finally:
            browser.close()


class Browser:
    """The running program and its pipe."""

    def __init__(self, path: str, profile: str) -> None:
        ours_out, theirs_in = _pair()
        theirs_out, ours_in = _pair()
        command = [
            sys.executable, "-c", STARTER, str(theirs_in), str(theirs_out), path,
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
            "--force-color-profile=srgb", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=self._log
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._write, self._read = ours_out, ours_in
        self._next = 0
        self._waiting = b""
        self._pages: dict[str, Page] = {}

    def open(
        self, file: Path, *, width: int = 1280, height: int = 800, dark: bool = False, touch: bool = False,
        scale: float = 1,
    ) -> Page:  # fmt: skip
        """A page of its own that shows this file, loaded. `width` and `height` are CSS pixels."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        key = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[key] = Page(self, key, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": touch}
        page.call("Emulation.setDeviceMetricsOverride", size)
        page.call("Emulation.setTouchEmulationEnabled", {"enabled": touch})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        page.own = file.resolve().as_uri()
        page.call("Page.navigate", {"url": page.own})
        page.until(f"document.readyState === 'complete' && location.href === {json.dumps(page.own)}")
        return page

    def call(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> Any:
        """One command of the protocol and its answer; what else comes meanwhile goes to its page."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline, method)
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            page = self._pages.get(answer.get("sessionId", ""))
            if page is not None:
                page.notice(answer.get("method", ""), answer.get("params", {}))

    def _receive(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._read], [], [], left)[0]
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                self._log.seek(0)
                said = self._log.read().decode(errors="replace")[-2000:]
                what = "ended" if ready else f"did not answer within {PATIENCE_S} s"
                raise RuntimeError(f"{method}: the browser {what}\n{said}")
            self._waiting += piece
        message, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(RuntimeError, OSError):
            self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Page:
    """One page. `complaints`: what a clean page has none of."""

    def __init__(self, browser: Browser, key: str, target: str) -> None:
        self._browser, self._key, self._target = browser, key, target
        self.own = ""
        self.complaints: list[str] = []

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> Any:
        """One command of the protocol for this page."""
        return self._browser.call(method, parameters, self._key)

    def notice(self, event: str, what: dict[str, Any]) -> None:
        """An event of the protocol: is it a complaint?"""
        if event == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and what["type"] in {"error", "warning", "assert"}:
            self.complaints.append(f"console: {[a.get('value', a.get('description')) for a in what['args']]}")
        elif event == "Log.entryAdded" and what["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"log: {what['entry']['text']} {what['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            url = what["request"]["url"]
            if self.own and url.split("#")[0] != self.own and not url.startswith(("data:", "blob:")):
                self.complaints.append(f"fetched {url}")

    def value(self, expression: str) -> Any:
        """What this JavaScript expression gives, as JSON can carry it; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True}
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Come back when the expression holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {PATIENCE_S} s: {expression}")

    def place(self, selector: str) -> tuple[float, float]:
        """The middle of the first element of this selector, scrolled into view."""
        return tuple(  # type: ignore[return-value]
            self.value(
                f"(e => {{e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect();"
                f"return [r.x + r.width / 2, r.y + r.height / 2]}})(document.querySelector({json.dumps(selector)}))"
            )
        )

    def tap(self, x: float, y: float) -> None:
        """A finger comes and goes."""
        self.call("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        self.call("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def hover(self, x: float, y: float) -> None:
        """The mouse comes to rest here."""
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def click(self, x: float, y: float) -> None:
        """The mouse's first button, once."""
        self.hover(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})

    def wheel(self, x: float, y: float, turn: float) -> None:
        """The mouse's wheel; less than zero: away from the reader."""
        self.call("Input.dispatchMouseEvent", {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": turn})

    def overflow(self) -> int:
        """CSS pixels by which the page is wider than its window."""
        return int(self.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def screenshot(self, file: Path, *, whole: bool = False) -> bytes:
        """What is seen, or the whole page, as a PNG in `file`."""
        answer = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        picture = base64.b64decode(answer["data"])
        file.write_bytes(picture)
        return picture

    def close(self) -> None:
        """Leave the page."""
        self._browser.call("Target.closeTarget", {"targetId": self._target})


def _pair() -> tuple[int, int]:
    """Descriptors of a pipe: its end to write, its end to read."""
    read, write = os.pipe()
    return write, read
