"""Headless Chromium, driven over its DevTools pipe: what a reader of a page sees and can do."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0  # seconds for an answer; a busy machine is slow, a dead browser answers never


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser; everything it asks for or complains of is kept."""

    def __init__(self, executable: str, profile: Path) -> None:
        to_child, to_us = os.pipe(), os.pipe()
        command = [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # Chromium wants descriptors 3 and 4, which may be taken here.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_child[0], to_us[1])]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), *command],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (to_child[0], to_us[1], *ends):
            os.close(end)
        self._write, self._read = to_child[1], to_us[0]
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return answer["result"]

    def show(
        self, page: Path | str, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """Open a file, or an address, as a reader with such a screen would."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self._loaded = False
        answer = self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        assert "errorText" not in answer, f"{page}: {answer['errorText']}"
        while not self._loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """What a line of script says in the page; a promise is waited for."""
        options = {"returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that matches."""
        place = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return {x: b.x + b.width / 2, y: b.y + b.height / 2}; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def screenshot(
        self, path: Path, whole: bool = False, clip: dict[str, Any] | None = None
    ) -> None:
        more: dict[str, Any] = {"captureBeyondViewport": whole}
        if clip is not None:
            more["clip"] = clip | {"scale": 1}
        picture = self.call("Page.captureScreenshot", format="png", **more)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self, path: Path) -> None:
        """Print the page."""
        printed = self.call("Page.printToPDF", preferCSSPageSize=False)
        path.write_bytes(base64.b64decode(printed["data"]))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser ended"
            self._buffer += got
        head, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(head)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, details: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif event == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append(details["entry"]["text"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(str(details["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(str(details["args"]))
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {details['message']}")

    def close(self) -> None:
        os.close(self._write)  # Chromium ends when its pipe does
        try:
            self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
