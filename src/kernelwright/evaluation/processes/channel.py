"""Framed messages between the judge and its children: one JSON header and raw tensor bytes, over a socket pair.

The judge reads data that an untrusted child writes, so nothing is unpickled, every length is bounded, and every wait
ends at a deadline. The channel does not authenticate. A candidate may write anything into its own channel; it can only
spoil its own verdict, because outputs are compared in the judge.

Frame: magic "KW", u32 header length, u32 number of buffers, u64 length of each buffer, header, buffers (little endian).
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from kernelwright.evaluation.tensor_bytes import ITEM_SIZES, TensorBytes, View

MAGIC = b"KW"
MAX_HEADER = 64 << 20
MAX_BUFFERS = 4096
MAX_PAYLOAD = 4 << 30
"""The bound on bytes of one message from a child that runs a candidate."""
TRUSTED_PAYLOAD = 1 << 40
"""The bound for senders that run no candidate: a task may have any number of weights."""
MAX_DIMENSIONS = 64
_HEAD = struct.Struct("<2sII")


class ChannelClosed(Exception):
    """The other side closed the channel, or wrote something that is no frame."""


class ChannelTimeout(Exception):
    """The deadline passed before a whole message arrived."""


@dataclass(frozen=True)
class Frame:
    """A header (any JSON object with a `kind`) and its tensors."""

    header: dict[str, Any]
    tensors: tuple[TensorBytes, ...] = ()

    @property
    def kind(self) -> str:
        return str(self.header.get("kind", ""))


class Channel:
    """One end of a socket pair. Not thread-safe: one thread speaks, one process listens."""

    def __init__(self, sock: socket.socket, most: int = MAX_PAYLOAD) -> None:
        """`most` bounds the bytes of one message that the other side sends."""
        self.sock, self.most = sock, most
        self.sock.setblocking(False)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def send(
        self, header: dict[str, Any], tensors: tuple[TensorBytes, ...] = (), deadline: float | None = None
    ) -> None:
        """Writes one message; raises `ChannelClosed` or `ChannelTimeout`."""
        described = dict(header, tensors=[_described(t) for t in tensors])
        text = json.dumps(described, separators=(",", ":")).encode("utf-8", "surrogatepass")
        parts = [b"" if t.view is not None and t.view.shares is not None else t.data for t in tensors]
        lengths = [len(data) for data in parts]
        head = _HEAD.pack(MAGIC, len(text), len(lengths)) + struct.pack(f"<{len(lengths)}Q", *lengths)
        self._write(memoryview(head + text), deadline)
        for data in parts:
            self._write(memoryview(data).cast("B"), deadline)

    def ready(self, seconds: float) -> bool:
        """Tells whether data can be read, now or within this number of seconds."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self, deadline: float | None = None) -> Frame:
        """Reads one message; raises `ChannelClosed` or `ChannelTimeout`."""
        magic, header_length, count = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if magic != MAGIC or header_length > MAX_HEADER or count > MAX_BUFFERS:
            raise ChannelClosed("the child wrote something that is not a message")
        lengths = struct.unpack(f"<{count}Q", self._read(8 * count, deadline))
        if sum(lengths) > self.most:
            raise ChannelClosed("the child announced more data than a message may hold")
        try:
            header = json.loads(bytes(self._read(header_length, deadline)).decode("utf-8", "surrogatepass"))
            kinds = header.pop("tensors", [])
            tensors: list[TensorBytes] = []
            for (dtype, shape, *view), length in zip(kinds, lengths, strict=True):
                tensors.append(self._tensor(dtype, shape, view, self._read(length, deadline), tensors))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ChannelClosed("the child wrote a message that cannot be read") from error
        return Frame(header, tuple(tensors))

    def _tensor(
        self, dtype: str, shape: list[int], view: list[Any], data: bytearray, before: list[TensorBytes]
    ) -> TensorBytes:
        count = 1
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"{len(shape)} dimensions")
        for size in shape:
            if type(size) is not int or size < 0:
                raise ValueError(f"shape {shape!r}")
            count *= size
        if view:
            return _viewed(dtype, shape, View(tuple(view[0]), *view[1:]), data, before)
        if count * ITEM_SIZES[dtype] != len(data):
            raise ValueError(f"{len(data)} bytes for {dtype} {shape}")
        return TensorBytes(data, dtype, tuple(shape))

    def _write(self, view: memoryview, deadline: float | None) -> None:
        while len(view):
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            except OSError as error:
                raise ChannelClosed(str(error)) from error

    def _read(self, length: int, deadline: float | None) -> bytearray:
        # A length may be hostile: memory is allocated as data arrives, in steps of at most 64 MB.
        data = bytearray()
        while len(data) < length:
            try:
                chunk = self.sock.recv(min(length - len(data), 64 << 20))
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not chunk:
                raise ChannelClosed("the child closed its channel")
            data += chunk
        return data

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self.sock, event)
        if deadline is None:
            poll.poll()
            return
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise ChannelTimeout("no message before the deadline")


def _described(tensor: TensorBytes) -> list[Any]:
    """Returns a tensor's description in the header: dtype and shape, then the layout of a view."""
    view = tensor.view
    layout = [] if view is None else [list(view.strides), view.offset, view.shares]
    return [tensor.dtype, list(tensor.shape), *layout]


def _viewed(dtype: str, shape: list[int], view: View, data: bytearray, before: list[TensorBytes]) -> TensorBytes:
    """Returns a tensor that is a view of its bytes, or of those of an earlier tensor. Raises what malformed fields
    raise."""
    if view.shares is not None:
        if type(view.shares) is not int or not 0 <= view.shares < len(before) or before[view.shares].view is None:
            raise ValueError(f"memory of tensor {view.shares!r}")
        data = before[view.shares].data  # type: ignore[assignment]
    if any(type(n) is not int or n < 0 for n in (*view.strides, view.offset)):
        raise ValueError(f"strides {view.strides!r} from {view.offset!r}")
    last = sum((n - 1) * s for n, s in zip(shape, view.strides, strict=True))
    if 0 not in shape and (view.offset + last + 1) * ITEM_SIZES[dtype] > len(data):
        raise ValueError(f"{len(data)} bytes for {dtype} {shape} with strides {view.strides}")
    return TensorBytes(data, dtype, tuple(shape), view)


def pair(most: int = MAX_PAYLOAD) -> tuple[Channel, socket.socket]:
    """Returns a channel for this process, which bounds the other's messages, and the bare socket for the other one."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return Channel(ours, most), theirs
