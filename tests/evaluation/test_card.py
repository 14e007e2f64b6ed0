"""Memory of a GPU at fixed addresses, against a driver in C that is compiled here."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.backends.device_addresses import LOW
from kernelwright.errors import DeviceError
from kernelwright.evaluation.candidate.handles import Addresses
from kernelwright.evaluation.device import host_driver
from kernelwright.evaluation.device.card import LiveCard, OutOfCardMemory
from kernelwright.evaluation.program import memory
from kernelwright.evaluation.program.live_memory import LiveMemory
from kernelwright.evaluation.program.live_repeat import Before
from kernelwright.evaluation.program.memory import GIVEN_LOW, BadAddress, OutOfMemory
from kernelwright.machine.device_memory import POISON

GRANULE, LIMIT = 1 << 21, 64 << 21
DRIVER = Path(__file__).with_name("card_driver.c")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("driver") / "libdriver.so"
    options = ["-D_GNU_SOURCE", "-shared", "-fPIC", "-O1"]
    subprocess.run(["gcc", *options, "-o", str(made), str(DRIVER)], check=True, timeout=60)
    return ctypes.CDLL(str(made))


_SPACE = iter(range(1, 1000))


@pytest.fixture(params=[False, True], ids=["where asked", "elsewhere"])
def card(driver: Any, request: pytest.FixtureRequest) -> Iterator[LiveCard]:
    """Two windows on fresh addresses, which the driver gives or does not give."""
    ctypes.c_int.in_dll(driver, "elsewhere").value = int(request.param)
    base = 0x3100_0000_0000 + (next(_SPACE) << 39)
    made = LiveCard(driver, host_driver.view, "cpu", (base, base + (1 << 38)))
    assert made.moved == request.param
    yield made
    made.release()


def _first(card: LiveCard, number: int = 0) -> int:
    return card._windows[number].first


def _counted(driver: Any, name: str) -> int:
    return ctypes.c_size_t.in_dll(driver, name).value


def test_memory_lies_where_it_was_asked_for(card: LiveCard, driver: Any) -> None:
    at = _first(card) + 5 * GRANULE - 100
    card.map(at, 200)
    card.write(at, bytes(range(200)))
    assert card.read(at + 10, 5) == bytes(range(10, 15))
    assert card.tensor(at, 4).tolist() == [0, 1, 2, 3]
    assert (card.real(at) == at) != card.moved and card.real(0x1234) == 0x1234
    assert _counted(driver, "used") == 2 * GRANULE and _counted(driver, "handles") == 0
    card.map(at - GRANULE, 3 * GRANULE)  # what is there stays
    assert card.read(at, 3) == b"\0\1\2" and _counted(driver, "used") == 4 * GRANULE
    assert sum(n for _, n in card.ranges()) == 4 * GRANULE


def test_addresses_among_bytes_are_the_cards(card: LiveCard) -> None:
    first, other = _first(card), _first(card, 1)
    card.map(first, 64)
    table = b"".join(n.to_bytes(8, "little") for n in (first + 8, 7, other + 1)) + b"end"
    card.write(first, table)
    words = [int.from_bytes(card.read(first + 8 * k, 8), "little") for k in range(3)]
    assert words == [card.real(first + 8), 7, card.real(other + 1)] and card.read(first + 24, 3) == b"end"


def test_no_more_than_there_is(card: LiveCard, driver: Any) -> None:
    first = _first(card)
    with pytest.raises(OutOfCardMemory):
        card.map(first, LIMIT + 1)
    with pytest.raises(OutOfCardMemory):
        card.map(first - GRANULE, 8)
    card.map(first, LIMIT)
    card.release()
    assert _counted(driver, "used") == _counted(driver, "maps") == 0
    card.map(first, LIMIT)  # again


def test_time_between_marks(card: LiveCard) -> None:
    first, second = card.mark(), card.mark()
    assert 0 <= card.elapsed(first, second) < 1e4
    with pytest.raises(IndexError):
        card.elapsed(first, second + 1)


def test_a_refusal_of_the_driver_has_its_words(card: LiveCard) -> None:
    with pytest.raises(DeviceError, match="CUDA error: invalid argument"):
        card._check(1)


@pytest.fixture
def blocks() -> Iterator[LiveMemory]:
    card = LiveCard(host_driver.HostDriver(), host_driver.view, "cpu", (LOW, GIVEN_LOW))
    made = LiveMemory(1 << 40, card)
    yield made
    made.clear()
    for window in card._windows:
        host_driver._libc().munmap(ctypes.c_void_p(window.base), ctypes.c_size_t(window.nbytes))


def test_fresh_memory_is_poisoned_and_freed_memory_again(blocks: LiveMemory) -> None:
    one = blocks.add(LOW, 5000)
    assert blocks.read(LOW, 5000) == b"\xff" * 5000
    blocks.fill(LOW, 1, 5000)
    blocks.free(LOW)
    blocks.poisoned = False  # as in a call that is timed
    kept = blocks.add(LOW + 8192, 100)
    blocks.fill(LOW + 8192, 2, 100)
    blocks.poison_free()
    assert blocks.add(LOW, 5000).label == memory.UNWRITTEN == one.label
    assert blocks.read(LOW, 5000) == b"\xff" * 5000 and blocks.read(kept.address, 100) == b"\2" * 100


def test_blocks_do_not_overlap_and_end_where_they_end(blocks: LiveMemory) -> None:
    blocks.add(LOW, 8000)
    for address, nbytes in ((LOW + 4096, 8), (LOW + 1, 8), (GIVEN_LOW * 2, 8), (0x1000, 8)):
        with pytest.raises(BadAddress):
            blocks.add(address, nbytes)
    with pytest.raises(BadAddress):
        blocks.holding(LOW + 7999, 2)
    with pytest.raises(OutOfMemory):
        blocks.add(LOW + (1 << 39), 1 << 40)


def test_the_judges_blocks_take_turns(blocks: LiveMemory) -> None:
    first = blocks.given(4096, "input 0")
    second = blocks.given(4096, "input 0")
    blocks.free(first.address)
    assert blocks.given(4096, "input 0").address == first.address != second.address


def test_memory_is_as_before_the_call(blocks: LiveMemory) -> None:
    kept, given = blocks.add(LOW, 100, "kept"), blocks.given(64, "input")
    blocks.put(kept.address, b"a" * 100)
    blocks.put(given.address, b"b" * 64)
    before = Before(blocks, [given])
    scratch = blocks.add(LOW + 4096, 50, "scratch")
    for block in (kept, given, scratch):
        blocks.put(block.address, b"c" * block.nbytes)
    blocks.free(kept.address)
    before.restore()
    assert blocks.read(LOW, 104) == b"a" * 100 + bytes([POISON]) * 4
    assert blocks.read(scratch.address, 50) == bytes([POISON]) * 50
    assert blocks.read(given.address, 64) == b"c" * 64  # the judge fills inputs itself


def test_addresses_that_are_used_again_never_overlap() -> None:
    chance, addresses, live = random.Random(5), Addresses(reused=True), dict[int, int]()
    highest = 0
    for _ in range(4000):
        if live and chance.random() < 0.5:
            gone = chance.choice(list(live))
            del live[gone]
            addresses.give(gone)
            continue
        nbytes = chance.choice((1, 4096, 4097, 100_000, 1 << 20))
        start = addresses.take(nbytes)
        assert all(start + nbytes <= at or at + n <= start for at, n in live.items())
        live[start] = nbytes
        highest = max(highest, start + nbytes - LOW)
    assert highest < 4 * (sum(live.values()) + (64 << 20))
    for at in list(live):
        addresses.give(at)
    assert addresses.take(1) == LOW  # all that was free is one range again


def test_addresses_are_given_once_where_use_after_free_is_to_show() -> None:
    addresses = Addresses()
    first = addresses.take(10)
    addresses.give(first)
    assert addresses.take(10) == first + 8192
