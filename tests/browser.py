"""Chromium without a window, driven through a pipe by its DevTools protocol, for tests of pages."""

import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time

import pytest

NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
PATIENCE = 30  # seconds
KEYS = {  # their codes and numbers
    " ": ("Space", 32), "Tab": ("Tab", 9), "Escape": ("Escape", 27), "Home": ("Home", 36),
    "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39),
}  # fmt: skip


class Chromium:
    """A browser process; it speaks JSON, ended by zero bytes, over the file descriptors 3 and 4."""

    def __init__(self, program, folder):
        low = [*os.pipe(), *os.pipe()]
        # Copies above 4, so that no end is overwritten while they are put into place.
        theirs_in, ours_out, ours_in, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
        command = [
            program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run",
            "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
            "--disable-component-update", "--no-sandbox", "about:blank",
        ]  # fmt: skip
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        self._process = os.posix_spawn(program, command, os.environ, file_actions=[*quiet, *pipes])
        for end in (*low, theirs_in, theirs_out):  # else the end of the process would go unnoticed
            os.close(end)
        self._out, self._in, self._read, self._numbers = ours_out, ours_in, b"", itertools.count()
        self.events = []

    def call(self, method, session=None, **parameters):
        """The answer to a command; events that come before it are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def receive(self):
        """The next message."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"Chromium said nothing for {PATIENCE} s"
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium has ended"
            self._read += more
        line, _, self._read = self._read.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def close(self):
        """Ends the process, and waits until it is gone."""
        os.kill(self._process, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._process, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self._out)
        os.close(self._in)


class Page:
    """A file, opened in a tab of its own."""

    def __init__(self, browser, path, width=1200, height=900, **media):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.go(path)

    def go(self, path):
        """Opens a file in this tab; events of the one before are forgotten."""
        self.browser.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not self.events("Page.loadEventFired"):
            self.browser.receive()
        self.settle()

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def events(self, *methods):
        return [
            e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e["method"] in methods
        ]

    def __call__(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self):
        """Waits until what was asked for is on the screen."""
        self("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key):
        code, number = KEYS[key]
        text = {"text": " "} if key == " " else {}
        for kind, extra in (("keyDown", text), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, **extra)

    def point(self, x, y, *more):
        """Moves the mouse there; `more` are further events, such as mousePressed."""
        for kind in ("mouseMoved", *more):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose(self, name, value):
        """Picks an option of one of the selectors."""
        self(f"form.elements.{name}.value = {json.dumps(value)}; form.dispatchEvent(new Event('change')); null")

    def count(self, what, section="curves"):
        """How many such elements each chart of a section has."""
        charts = f"[...document.querySelectorAll('[data-section={section}] figure')]"
        return self(f"{charts}.map((figure) => figure.querySelectorAll('{what}').length)")

    def readout(self, chart=0):
        """The lines beside a chart."""
        rows = f"document.querySelectorAll('.readout')[{chart}].querySelectorAll('caption, tr')"
        return [" ".join(text.split()) for text in self(f"[...{rows}].map((row) => row.innerText)")]

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def complaints(self):
        """Warnings and errors of the page or the browser."""
        logged = [
            e["entry"]["text"] for e in self.events("Log.entryAdded") if e["entry"]["level"] in ("warning", "error")
        ]
        spoken = [str(e["args"]) for e in self.events("Runtime.consoleAPICalled") if e["type"] in ("warning", "error")]
        return logged + spoken + [str(e["exceptionDetails"]) for e in self.events("Runtime.exceptionThrown")]


def find():
    """The browser; where there is none the tests are skipped, or fail where they must not be."""
    for program in filter(None, map(shutil.which, NAMES)):
        return program
    message = "no Chromium is installed: apt-get install chromium (Debian), or put google-chrome on the PATH"
    if os.environ.get("MOCA_NEEDS_BROWSER") == "1":
        pytest.fail(message)
    pytest.skip(message)


def opener(browser, default):
    """Opens pages, as a fixture does it; in the end it is looked at what each said and asked for."""
    pages = []

    def open_(path=default, **how):
        pages.append(Page(browser, path, **how))
        return pages[-1]

    yield open_
    for page in pages:
        asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
        assert [url for url in asked if not url.startswith("data:")] == [asked[0]]
        assert asked[0].startswith("file:")
        assert page.complaints() == []
        page.close()
