"""TensorBoard event files, written without thread or buffer, to report errors at once."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moca import files


class EventFile:
    """Scalars by step, in a separate file for each start of a run.

    Args:
        folder: The folder of the file; TensorBoard shows its name.
        purge: TensorBoard discards entries of earlier files from this step on.
    """

    def __init__(self, folder: Path, purge: int | None = None) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        start = f"events.out.tfevents.{time.time_ns() / 1e9:.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path, self._event = folder / start, Event
        self._add(file_version="brain.Event:2")
        if purge is not None:
            self._add(step=purge, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes one number for each name."""
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._add(step=step, summary=Summary(value=values))

    def _add(self, **event: Any) -> None:
        from tensorboardX.crc32c import crc32c

        def checked(part: bytes) -> bytes:
            crc = crc32c(part)
            return part + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

        data = self._event(wall_time=time.time(), **event).SerializeToString()
        files.append(self._path, checked(struct.pack("<Q", len(data))) + checked(data))
