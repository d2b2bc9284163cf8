"""Signals that ask a run to stop: the first is noted and answered after the episode, a Ctrl-C then acts at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RESUMABLE = 75  # exit code of a run that stopped on request and can go on; sysexits.h calls it a temporary failure
SIGNALS = [signal.SIGINT, signal.SIGTERM, *(getattr(signal, n) for n in ("SIGUSR1", "SIGUSR2") if hasattr(signal, n))]


class InterruptedRun(Exception):
    """A run that stopped on request after it was saved; the message says how to go on."""


class Request:
    """Whether a signal came, and which."""

    name: str | None = None

    def __bool__(self) -> bool:
        return self.name is not None


@contextmanager
def noted() -> Iterator[Request]:
    """Notes the first signal while the block runs; a Ctrl-C after it leaves at once.

    Only the main thread gets signals; elsewhere nothing changes.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.name = request.name or signal.Signals(number).name

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
