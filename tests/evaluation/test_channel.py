"""Channel: frames arrive intact, and hostile bytes end the conversation and nothing else."""

import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.evaluation.processes.channel import Channel, ChannelClosed, ChannelTimeout, pair
from kernelwright.evaluation.tensor_bytes import TensorBytes


def connected() -> tuple[Channel, Channel]:
    ours, theirs = pair()
    return ours, Channel(theirs)


def test_message_with_tensors_arrives_as_sent() -> None:
    a, b = connected()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    a.send({"kind": "call", "x": [1, None, "é"]}, (TensorBytes(values.tobytes(), "float32", (3, 4)),))
    message = b.receive(time.monotonic() + 5)
    assert message.header == {"kind": "call", "x": [1, None, "é"]}
    assert np.array_equal(message.tensors[0].array(), values)


def test_payload_larger_than_the_socket_buffer() -> None:
    a, b = connected()
    data = np.random.default_rng(0).integers(0, 255, 20_000_000, dtype=np.uint8)
    sender = threading.Thread(
        target=a.send,
        args=({"kind": "big"}, (TensorBytes(data.tobytes(), "uint8", (len(data),)),), time.monotonic() + 20),
    )
    sender.start()
    message = b.receive(time.monotonic() + 20)
    sender.join()
    assert np.array_equal(message.tensors[0].array(), data)


def test_bfloat16_is_widened_exactly() -> None:
    halves = np.array([0x3F80, 0xC000, 0x7F80, 0x7FC0], dtype=np.uint16)
    values = TensorBytes(halves.tobytes(), "bfloat16", (4,)).array()
    assert values[:3].tolist() == [1.0, -2.0, float("inf")] and np.isnan(values[3])


def test_silence_ends_at_the_deadline() -> None:
    a, _b = connected()
    started = time.monotonic()
    with pytest.raises(ChannelTimeout):
        a.receive(started + 0.1)
    assert time.monotonic() - started < 2


def test_half_a_message_ends_at_the_deadline() -> None:
    ours, theirs = pair()
    theirs.send(b"KW\x10\x00\x00\x00")
    with pytest.raises(ChannelTimeout):
        ours.receive(time.monotonic() + 0.1)


def test_closed_end_is_noticed() -> None:
    ours, theirs = pair()
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.receive(time.monotonic() + 1)


@pytest.mark.parametrize(
    "tensors", [[["float32", [2]]], [["float32", [-1]]], [["nonsense", [1]]], [["float32", ["x"]]], "no list", [1]]
)
def test_announced_shape_must_fit_the_bytes(tensors: object) -> None:
    import json
    import struct

    ours, theirs = pair()
    text = json.dumps({"kind": "called", "tensors": tensors}).encode()
    theirs.sendall(struct.pack("<2sII", b"KW", len(text), 1) + struct.pack("<Q", 4) + text + b"1234")
    with pytest.raises(ChannelClosed):
        ours.receive(time.monotonic() + 1)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_garbage_never_hangs_or_crashes(data: bytes) -> None:
    ours, theirs = pair()
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises((ChannelClosed, ChannelTimeout)):
        while True:
            ours.receive(time.monotonic() + 1)
    ours.close()
    theirs.close()
