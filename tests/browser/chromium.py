"""A small client of Chromium's DevTools protocol, over a pipe. It needs nothing but Chromium."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds for one answer, on a machine that is busy with other work
OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
# Chromium reads commands from file 3 and writes answers to file 4.
LAUNCH = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The path of Chromium, or None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Chromium:
    """One browser process. Use it as a context."""

    def __init__(self, program: str, profile: Path) -> None:
        self._commands, self._answers = os.pipe(), os.pipe()
        inherited = (self._commands[0], self._answers[1])
        command = [sys.executable, "-S", "-c", LAUNCH, *map(str, inherited), program]
        self._process = subprocess.Popen(
            [*command, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=inherited,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for handle in inherited:
            os.close(handle)
        self._read = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(PATIENCE)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for handle in (self._commands[1], self._answers[0]):
            os.close(handle)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result. Events that come before the answer are kept in `events`."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._commands[1], json.dumps(message).encode() + b"\0")
        while True:
            found = self.receive()
            if found.get("id") == self._count:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def receive(self) -> dict[str, Any]:
        """The next message of the browser."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._read:
            if not select.select([self._answers[0]], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium has not answered for {PATIENCE:.0f} seconds")
            more = os.read(self._answers[0], 1 << 20)
            if not more:
                raise OSError("Chromium has ended")
            self._read += more
        line, self._read = self._read.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found


class Tab:
    """A tab with one page. Its errors and requests are recorded from the start.

    Args:
        browser: The browser.
        width: Width of the window in pixels.
        dark: Whether the reader prefers a dark colour scheme.
        script: Whether scripts may run.
    """

    def __init__(self, browser: Chromium, width: int = 1280, dark: bool = False, script: bool = True) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        self._script = script
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.resize(width)
        self.prefer(dark)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.settle()

    def prefer(self, dark: bool, media: str = "") -> None:
        """Set the reader's colour scheme, and "print" as `media` to see the page as it is printed."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, page: Path) -> Tab:
        """Open a file, and wait until it is loaded and drawn."""
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not self._mine("Page.loadEventFired"):
            self._browser.events.append(self._browser.receive())
        self.settle()
        return self

    def settle(self) -> None:
        """Wait until what was changed has been drawn."""
        if not self._script:
            return
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        self.call("Runtime.evaluate", expression=frames, awaitPromise=True)

    def wait(self, condition: str) -> None:
        """Wait until an expression is true, also while the page is loaded again."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if self.js(condition):
                    return
            except RuntimeError:  # the page was loaded again meanwhile
                pass
            time.sleep(0.05)
        raise TimeoutError(condition)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page. An error in it is an error here."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements of a CSS selector."""
        every = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return list(self.js(f"{every}.map(one => one.textContent)"))

    def mouse(self, kind: str, x: float, y: float, clicks: int = 0) -> None:
        """Send an event of the mouse: "mousePressed", "mouseReleased" or "mouseMoved"."""
        about = {"button": "left", "clickCount": clicks} if clicks else {}
        held = 1 if clicks and kind != "mouseReleased" else 0
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=held, **about)

    def click(self, selector: str, times: int = 1) -> None:
        """Click on the middle of the first element of a CSS selector, once or several times in a row."""
        left, top, width, height = self.box(selector)
        x, y = left + width / 2, top + height / 2
        for count in range(1, times + 1):
            self.mouse("mousePressed", x, y, count)
            self.mouse("mouseReleased", x, y, count)
        self.settle()

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element in the window, after it is scrolled there."""
        one = f"document.querySelector({json.dumps(selector)})"
        self.js(f"{one}.scrollIntoView({{block: 'center'}})")
        found = self.js(f"(b => [b.left, b.top, b.width, b.height])({one}.getBoundingClientRect())")
        return found[0], found[1], found[2], found[3]

    def key(self, key: str) -> None:
        """Press a key in the element that has the focus."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Enter": 13, "Tab": 9, " ": 32, "Escape": 27}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        self.settle()

    def _mine(self, method: str) -> list[dict[str, Any]]:
        return [
            one["params"]
            for one in self._browser.events
            if one.get("sessionId") == self._session and one["method"] == method
        ]

    def requests(self) -> list[str]:
        """The addresses of everything that the page has asked for."""
        return [one["request"]["url"] for one in self._mine("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """What the page wrote to the console, its uncaught errors, and what the browser says against it."""
        written = [one["args"] for one in self._mine("Runtime.consoleAPICalled")]
        thrown = [one["exceptionDetails"]["text"] for one in self._mine("Runtime.exceptionThrown")]
        logged = [one["entry"]["text"] for one in self._mine("Log.entryAdded")]
        return [*map(str, written), *thrown, *logged]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
