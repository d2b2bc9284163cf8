"""Signals that stop a run: the first stops it after the episode, a second Ctrl-C immediately.

Python runs signal handlers between bytecodes, not while a program compiles or an episode is
computed. A process that exists only for runs (see `own_process`) therefore has a thread that
receives signals when they arrive, and exits at once if there is nothing to wait for.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

RESUMABLE = 75  # exit code of a run that was stopped and can be resumed, EX_TEMPFAIL in sysexits.h
AT_ONCE = 130  # exit code after an immediate stop
SIGNALS = [signal.SIGINT, signal.SIGTERM, *(getattr(signal, n) for n in ("SIGUSR1", "SIGUSR2") if hasattr(signal, n))]

_may_exit = False


class InterruptedRun(Exception):
    """The run was stopped and saved; the message says how to resume it."""

    code = RESUMABLE


class DivergedRun(Exception):
    """All runs diverged; the message says when and why."""

    code = 3


class Request:
    """The signal that was received, if any."""

    name: str | None = None
    leave: Callable[[str], None] | None = None  # called before an immediate exit; None means to wait for the episode

    def __bool__(self) -> bool:
        return self.name is not None

    @contextmanager
    def at_once(self, leave: Callable[[str], None]) -> Iterator[None]:
        """Makes a signal end the process immediately, after `leave(name of the signal)`."""
        self.leave = leave
        try:
            yield
        finally:
            self.leave = None


def own_process() -> None:
    """Declares that this process exists only for runs, so that a signal may end it at any point."""
    global _may_exit
    _may_exit = True


@contextmanager
def noted() -> Iterator[Request]:
    """Records the first signal within the block; a further Ctrl-C raises `KeyboardInterrupt`.

    Only the main thread receives signals; in other threads this does nothing.
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
        with _watched(request):
            yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watched(request: Request) -> Iterator[None]:
    """Starts a thread that receives signals, if this process exists only for runs."""
    if not _may_exit:
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read, request), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write)  # ends the thread


def _watch(pipe: int, request: Request) -> None:
    asked = False
    while number := os.read(pipe, 1):
        if number[0] not in SIGNALS:
            continue
        if leave := request.leave:
            try:
                leave(signal.Signals(number[0]).name)
            finally:  # exit whatever happens
                _exit(RESUMABLE)
        if asked and number[0] == signal.SIGINT:
            _exit(AT_ONCE)
        asked = True
    os.close(pipe)


def _exit(code: int) -> None:
    """Exits without waiting for running computations."""
    if sys.stdout.isatty():
        print("\x1b[?25h", end="")  # show the cursor that a progress bar has hidden
    with suppress(OSError, ValueError):  # standard output may be closed
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
