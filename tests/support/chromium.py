"""A headless Chromium that a test drives: pages, keys, colour schemes, screenshots, and the errors of a page.

It speaks the DevTools protocol over two pipes, which end with the test: so does the browser. Nothing else is needed.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from servers import install

_ANSWER_S = 30.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowRight": 39}

# The browser reads commands from its file 3, and writes to 4.
_WITH_PIPES = """
import os, sys
pipes = [os.dup(os.dup(int(each))) for each in sys.argv[1:3]]
for number, pipe in zip((3, 4), [os.dup2(each, 20 + each) for each in pipes]):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """One page in a browser of its own, with its profile in `folder`.

    Attributes:
        errors: errors and warnings of the console, and exceptions.
        requests: the URLs that were asked for.
    """

    def __init__(self, folder: Path) -> None:
        program, environment = install.chromium()
        arguments = [
            str(program),
            "--headless",
            "--no-sandbox",  # it runs as root in containers, and opens pages of the tests only
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            "--remote-debugging-pipe",
        ]
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        command = [sys.executable, "-I", "-S", "-c", _WITH_PIPES, str(commands), str(answers), *arguments]
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(commands, answers),
                env={**os.environ, **environment, "HOME": str(folder)},
            )
        os.close(commands)
        os.close(answers)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def open(self, url: str, *, ready: str = "document.documentElement.dataset.ready === 'true'") -> None:
        """Open a page, and wait until it is `ready`; another page is left before, and its errors are dropped."""
        self.send("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank'")
        self.errors.clear()
        self.requests.clear()
        self.send("Page.navigate", url=url)
        self.wait_for(f"location.href !== 'about:blank' && ({ready})")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression holds."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            with contextlib.suppress(AssertionError):
                if self.evaluate(condition):
                    return
            assert time.monotonic() < deadline, f"never: {condition}; {self.errors}"
            wait([self._from], 0.05)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        text = {"Enter": "\r", " ": " "}.get(key)
        known = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.send("Input.dispatchKeyEvent", **down, **known)
        self.send("Input.dispatchKeyEvent", type="keyUp", **known)

    def prefer(self, scheme: str) -> None:
        """Set the colour scheme of the system: `light` or `dark`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int) -> None:
        """The size of the window, in pixels."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **screen)

    def screenshot(self, **options: Any) -> bytes:
        """The visible page as an image; `format` and `quality` as of the protocol."""
        return base64.b64decode(self.send("Page.captureScreenshot", **options)["data"])

    def send(self, method: str, **parameters: Any) -> Any:
        """A command of the protocol, and its result; events meanwhile are noted."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert wait([self._from], max(0.0, deadline - time.monotonic())), "Chromium does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "Chromium has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        method, given = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(given["exceptionDetails"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{given['entry']['level']}: {given['entry']['text']}")
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(given["args"]))
