"""Signals that ask a run to stop: the first is answered after the episode, a Ctrl-C after it at once.

Python calls its signal handlers between two steps of its own, and not while a program is compiled or an episode is
computed. A process that belongs to the run alone (see `own_process`) therefore has a thread that learns of signals
when they come: it leaves at once where there is nothing to wait for.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

RESUMABLE = 75  # exit code of a run that stopped on request and can go on; sysexits.h calls it a temporary failure
AT_ONCE = 130  # of one that was left at once
SIGNALS = [signal.SIGINT, signal.SIGTERM, *(getattr(signal, n) for n in ("SIGUSR1", "SIGUSR2") if hasattr(signal, n))]

_may_exit = False


class InterruptedRun(Exception):
    """A run that stopped on request after it was saved; the message says how to go on."""

    code = RESUMABLE


class DivergedRun(Exception):
    """All runs diverged, so there was nothing to go on with; the message says when and why."""

    code = 3


class Request:
    """A signal that came, if any."""

    name: str | None = None
    leave: Callable[[str], None] | None = None  # what to do before leaving at once; None: the episode is waited for

    def __bool__(self) -> bool:
        return self.name is not None

    @contextmanager
    def at_once(self, leave: Callable[[str], None]) -> Iterator[None]:
        """While the block runs, a signal ends the process, if it is the run's own, after `leave(its name)`."""
        self.leave = leave
        try:
            yield
        finally:
            self.leave = None


def own_process() -> None:
    """Says that this process is there for runs alone, so that a signal may end it in the middle of anything."""
    global _may_exit
    _may_exit = True


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
        with _watched(request):
            yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watched(request: Request) -> Iterator[None]:
    """Has a thread look at signals as they come, if this process is the run's own."""
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
        os.close(write)  # which ends the thread


def _watch(pipe: int, request: Request) -> None:
    asked = False
    while number := os.read(pipe, 1):
        if number[0] not in SIGNALS:
            continue
        if leave := request.leave:
            try:
                leave(signal.Signals(number[0]).name)
            finally:  # it leaves whatever happens
                _exit(RESUMABLE)
        if asked and number[0] == signal.SIGINT:
            _exit(AT_ONCE)
        asked = True
    os.close(pipe)


def _exit(code: int) -> None:
    """Leaves without waiting for whatever is being computed."""
    if sys.stdout.isatty():
        print("\x1b[?25h", end="")  # the cursor, which a progress bar hides
    with suppress(OSError, ValueError):  # nobody may be there to read it
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
