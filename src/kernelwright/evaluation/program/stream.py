"""The record stream between a candidate's process and its device process: framing, and nothing about meaning.

A record is a JSON array whose first item names its kind, with up to 4096 byte strings. Nothing is unpickled and every
length is bounded, since the candidate's process can write anything into its end.

Frame: magic "KR", u32 length of the JSON, u32 number of byte strings, u64 length of each, JSON, bytes (little endian).
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = b"KR"
MAX_JSON = 16 << 20
MAX_PARTS = 4096
MAX_PAYLOAD = 4 << 30
_HEAD = struct.Struct("<2sII")
_FLUSH = 1 << 16
"""Bytes of records that wait in the candidate's process before they are sent."""


class StreamClosed(Exception):
    """The other end closed the stream, or wrote something that is no record."""


@dataclass(frozen=True)
class StreamRecord:
    """One record: its kind, its fields, and its byte strings."""

    kind: str
    fields: list[Any]
    parts: tuple[bytearray, ...] = ()


class RecordStream:
    """One end of the stream. Records are buffered until `flush`; `ask` flushes and waits for the answer.

    Threads may share it. A record may also be written while another one is, by an object that is collected then.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self.sent = 0
        """The number of records written."""
        self.spin = 0.0
        """Seconds for which `ask` looks for the answer again and again, before it sleeps: waking up takes longer than
        many answers."""
        self._waiting = bytearray()
        self._arrived = bytearray()
        self._lock = threading.RLock()
        self._flushing = False

    def fileno(self) -> int:
        return self.sock.fileno()

    def write(self, kind: str, *fields: Any, parts: Sequence[bytes | memoryview] = ()) -> None:
        """Appends one record. Raises `StreamClosed` if the other end is gone."""
        text = json.dumps([kind, *fields], separators=(",", ":")).encode("utf-8", "surrogatepass")
        head = _HEAD.pack(MAGIC, len(text), len(parts)) + struct.pack(f"<{len(parts)}Q", *map(len, parts))
        whole = b"".join((head, text, *parts))
        with self._lock:
            self._waiting += whole
            self.sent += 1
            if len(self._waiting) >= _FLUSH:
                self.flush()

    def flush(self) -> None:
        """Sends all buffered records."""
        with self._lock:
            if self._flushing:
                return  # the flush that is under way sends what was written during it
            self._flushing = True
            try:
                while self._waiting:
                    view, self._waiting = memoryview(self._waiting), bytearray()
                    self._send(view)
            finally:
                self._flushing = False

    def _send(self, view: memoryview) -> None:
        while len(view):
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)
            except OSError as error:
                raise StreamClosed(str(error)) from error

    def ask(self, kind: str, *fields: Any, parts: Sequence[bytes | memoryview] = ()) -> StreamRecord:
        """Sends a record and returns the other end's answer."""
        with self._lock:
            self.write(kind, *fields, parts=parts)
            self.flush()
            until = time.perf_counter() + self.spin
            while True:
                record = self.next()
                if record is not None:
                    return record
                if time.perf_counter() > until:
                    self._wait(select.POLLIN)

    def next(self) -> StreamRecord | None:
        """Returns the next whole record that has arrived; None if there is none yet. Raises `StreamClosed`."""
        found = self._parsed()
        while found is None and self._receive():
            found = self._parsed()
        return found

    def _receive(self) -> bool:
        try:
            chunk = self.sock.recv(1 << 20)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StreamClosed(str(error)) from error
        if not chunk:
            raise StreamClosed("the other end closed the stream")
        self._arrived += chunk
        return True

    def _parsed(self) -> StreamRecord | None:
        data = self._arrived
        if len(data) < _HEAD.size:
            return None
        magic, length, count = _HEAD.unpack_from(data)
        if magic != MAGIC or length > MAX_JSON or count > MAX_PARTS:
            raise StreamClosed("something that is no record")
        at = _HEAD.size + 8 * count
        if len(data) < at:
            return None
        lengths = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        total = at + length + sum(lengths)
        if total > MAX_PAYLOAD:
            raise StreamClosed("a record of more data than one may hold")
        if len(data) < total:
            return None
        try:
            kind, *fields = json.loads(bytes(data[at : at + length]).decode("utf-8", "surrogatepass"))
        except (ValueError, TypeError, RecursionError) as error:
            raise StreamClosed("a record that cannot be read") from error
        at += length
        parts = []
        for size in lengths:
            parts.append(data[at : at + size])
            at += size
        del data[:total]
        return StreamRecord(str(kind), fields, tuple(parts))

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self.sock, event)
        poll.poll()
