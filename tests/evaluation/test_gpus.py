"""Leases on a GPU and its seats, by threads and processes; the CPU stands in for the GPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.errors import WorkerDied
from kernelwright.evaluation.processes import gpu_seats
from kernelwright.evaluation.processes.gpu_seats import HEADROOMS, SEATS, Gpu, Lease
from kernelwright.evaluation.processes.pool import ChildLimits, Pool
from kernelwright.evaluation.processes.roles import Role, jail_of

WAIT = 20.0


@pytest.fixture
def gpu(pool: Pool) -> Iterator[Gpu]:
    made = Gpu(pool, "0", "cpu", makers=1)
    yield made
    made.close()


def test_shared_and_exclusive_turns(tmp_path: Path) -> None:
    """Threads take either kind of lease: shared ones overlap, an exclusive one overlaps with nothing."""
    lease = Lease(tmp_path / "gpu-0")
    now: dict[str, int] = {"exclusive": 0, "shared": 0}
    seen: set[tuple[int, int]] = set()
    guard, end = threading.Lock(), time.monotonic() + 1.5

    def enter(kind: str, change: int) -> None:
        with guard:
            now[kind] += change
            seen.add((now["exclusive"], now["shared"]))

    def work(kind: str) -> None:
        while time.monotonic() < end:
            with lease.exclusive() if kind == "exclusive" else lease.shared():
                enter(kind, 1)
                time.sleep(0.005)
                enter(kind, -1)

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("exclusive", *["shared"] * 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert {exclusive for exclusive, shared in seen if shared} == {0}
    assert max(exclusive for exclusive, _ in seen) == 1 and max(shared for _, shared in seen) > 1


def test_an_exclusive_request_is_not_starved_by_shared_ones(tmp_path: Path) -> None:
    """Two processes always hold shared leases, never both released at once; a third still gets the exclusive one."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom kernelwright.evaluation.processes.gpu_seats import Lease\n"
        "lease = Lease(Path(sys.argv[1]))\nprint('begun', flush=True)\n"
        "while True:\n    with lease.shared():\n        time.sleep(0.05)\n"
    )
    path = tmp_path / "gpu-0"
    argv = [sys.executable, "-c", code, str(path)]
    busy = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for process in busy:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
        lease, began = Lease(path), time.monotonic()
        for _ in range(3):
            with lease.exclusive():
                pass
        assert time.monotonic() - began < WAIT
    finally:
        for process in busy:
            process.kill()
            process.wait(WAIT)
            assert process.stdout is not None
            process.stdout.close()


def test_an_exclusive_request_waits_for_further_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared work pauses once for all exclusive requests, though they did not arrive together."""
    monkeypatch.setattr(gpu_seats, "GATHERED", 3)
    monkeypatch.setattr(gpu_seats, "GATHER_SECONDS", WAIT)
    lease, turns = Lease(tmp_path / "gpu-0"), list[str]()
    end = threading.Event()

    def shared() -> None:
        while not end.is_set():
            with lease.shared():
                turns.append("shared")
                time.sleep(0.005)

    def exclusive() -> None:
        with lease.exclusive():
            turns.append("exclusive")

    busy = [threading.Thread(target=shared) for _ in range(2)]
    wanting = [threading.Thread(target=exclusive) for _ in range(3)]
    for thread in (*busy, *wanting):
        thread.start()
        time.sleep(0.05)
    for thread in wanting:
        thread.join(WAIT)
    end.set()
    for thread in busy:
        thread.join(WAIT)
    first = turns.index("exclusive")
    assert turns[first : first + 3] == ["exclusive"] * 3 and turns[:first].count("shared") > 3


def test_who_is_the_only_one_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_seats, "GATHER_SECONDS", 10 * WAIT)
    lease, began = Lease(tmp_path / "gpu-0"), time.monotonic()
    for _ in range(3):
        with lease.shared():
            pass
        with lease.exclusive():
            pass
    assert time.monotonic() - began < WAIT


def test_a_turn_ends_with_what_is_raised_in_it(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "gpu-0")
    for turn in (lease.exclusive, lease.shared, lease.exclusive):
        with pytest.raises(ValueError, match="inside"), turn():
            raise ValueError("inside")


def test_a_task_comes_back_to_its_seat(gpu: Gpu) -> None:
    with gpu.seat("a", exclusive=False) as first, gpu.seat("b", exclusive=False) as second:
        assert first is not second
    with gpu.seat("a", exclusive=False) as again:
        assert again is first
    with gpu.seat("c", exclusive=False) as other:  # any seat: the most recently used one
        assert other is first


def test_there_are_so_many_seats_and_an_exclusive_judgement_has_them_all(gpu: Gpu) -> None:
    events: list[str] = []
    held = threading.Event()

    def sit(name: str, exclusive: bool) -> None:
        with gpu.seat(name, exclusive):
            events.append(f"{name} in")
            if not exclusive:
                held.wait(WAIT)
            events.append(f"{name} out")

    sitting = [threading.Thread(target=sit, args=(f"s{n}", False)) for n in range(SEATS)]
    for thread in sitting:
        thread.start()
    while len(events) < SEATS:
        time.sleep(0.01)
    late = threading.Thread(target=sit, args=("exclusive", True))
    late.start()
    time.sleep(0.2)
    later = threading.Thread(target=sit, args=("later", False))
    later.start()
    time.sleep(0.2)
    assert len(events) == SEATS  # no other thread holds a seat
    held.set()
    for thread in (*sitting, late, later):
        thread.join(WAIT)
    assert events[-4:] == ["exclusive in", "exclusive out", "later in", "later out"]


def test_a_task_that_asks_for_more_headroom_gets_it(gpu: Gpu) -> None:
    """It gets more memory, then all seats; the next judgements of the task begin with that."""
    headrooms, free = [], []
    for _ in range(len(HEADROOMS) + 2):
        with gpu.seat("a", exclusive=False) as seat:
            headrooms.append(seat.headroom)
            free.append(len(gpu._free))
            if seat.headroom:
                gpu.more_headroom("a", seat.headroom)
    assert headrooms == [*HEADROOMS, 0, 0] and free == [SEATS - 1] * len(HEADROOMS) + [0, 0]
    with gpu.seat("b", exclusive=False) as seat:
        assert seat.headroom == HEADROOMS[0] and len(gpu._free) == SEATS - 1


def test_who_asks_for_headroom_at_once_gets_the_same(gpu: Gpu) -> None:
    """Answers to one task begin together and all lack memory: the task grows by one step, not by many."""
    for _ in range(8):
        gpu.more_headroom("a", HEADROOMS[0])
    with gpu.seat("a", exclusive=False) as seat:
        assert seat.headroom == HEADROOMS[1]


def test_a_large_task_begins_with_the_headroom_that_it_needs_at_least(gpu: Gpu) -> None:
    for key, nbytes, headroom in (("a", 0, 1), ("b", 2 << 30, 3), ("c", 20 << 30, 26), ("d", 99 << 30, 0)):
        gpu.expect(key, nbytes)
        with gpu.seat(key, exclusive=False) as seat:
            assert seat.headroom == headroom << 30
    gpu.more_headroom("b", 3 << 30)
    gpu.expect("b", 2 << 30)  # the measured need overrides the expected one
    with gpu.seat("b", exclusive=False) as seat:
        assert seat.headroom == 6 << 30


def test_all_headrooms_together_are_no_more_than_there_is_memory(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large task runs beside small ones, but not beside another large one; a task may also take all memory."""
    monkeypatch.setattr(gpu_seats, "MEMORY", 30 << 30)
    events: list[str] = []
    leave = {name: threading.Event() for name in ("large", "other", "small")}

    def sit(name: str) -> None:
        with gpu.seat(name, exclusive=False):
            events.append(f"{name} in")
            assert leave[name].wait(WAIT)
        events.append(f"{name} out")

    gpu.expect("large", 26 << 30)
    gpu.expect("other", 13 << 30)
    threads = []
    for name in ("large", "small", "other"):
        threads.append(threading.Thread(target=sit, args=(name,)))
        threads[-1].start()
        time.sleep(0.1)
    assert events == ["large in", "small in"] and gpu._taken == (26 + 1) << 30
    leave["large"].set()
    while "other in" not in events:
        time.sleep(0.01)
    leave["other"].set()
    leave["small"].set()
    for thread in threads:
        thread.join(WAIT)
    assert events[2:4] == ["large out", "other in"] and gpu._taken == 0
    monkeypatch.setattr(gpu_seats, "MEMORY", 1 << 30)
    with gpu.seat("large", exclusive=False) as seat:
        assert seat.headroom == 26 << 30


def test_an_exclusive_judgement_has_the_others_memory(gpu: Gpu) -> None:
    """Empty seats free the memory of their last task; a seat that cannot is restarted."""
    with gpu.seat("a", exclusive=False) as first, gpu.seat("b", exclusive=False) as second:
        for seat in (first, second):
            seat.referee.ask("t", {"kind": "facts"})
        child = second.referee.child
        assert child is not None
        assert child.fate().signal == signal.SIGKILL
    with gpu.seat("a", exclusive=True) as seat:
        assert seat is first and second.key == "" and second.referee.child is None
    with gpu.seat("a", exclusive=False) as seat:
        assert seat.referee.ask("t", {"kind": "facts"}).header["device"]["name"] == "host"


@pytest.mark.parametrize("role", ["referee", "baseline", "gpu_runner", "replayer", "handles", "runner"])
def test_compiled_operators_are_kept_by_who_runs_no_candidate(role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child loads operators that another child compiled, so no candidate may write to that folder."""
    orders: list[dict[str, Any]] = []

    def send(_socket: Any, data: list[bytes], _fds: list[int]) -> int:
        orders.append(json.loads(data[0]))
        raise OSError("not sent")

    with Pool("none") as own:
        own.warm()
        with monkeypatch.context() as patched:
            patched.setattr("kernelwright.evaluation.processes.pool.socket.send_fds", send)
            with pytest.raises(WorkerDied):
                own.spawn(role, ChildLimits(1, 100), device={"name": "cuda", "index": "0"})
        kept = own.home / "kernels"
        trusted = role in ("referee", "baseline")
        assert (kept in jail_of(orders[0]).writable) == trusted
        assert orders[0]["kernels"] == (str(kept) if trusted else "")


def test_a_task_that_lacks_memory_with_the_whole_gpu_is_judged_without_other_processes(gpu: Gpu) -> None:
    with gpu.seat("a", exclusive=False) as first, gpu.seat("b", exclusive=False) as second:
        for seat in (first, second):
            seat.referee.ask("t", {"kind": "facts"})
    gpu.more_headroom("b", 0)
    with gpu.seat("b", exclusive=False) as seat:
        assert seat is second and seat.alone and not seat.headroom
        assert first.referee.child is None and second.referee.child is not None


def test_no_runner_is_opened_before_one_is_asked_for(gpu: Gpu) -> None:
    """Most candidates go by their programs."""
    assert gpu._ordered == 0
    for _ in range(2):
        gpu.runner().end()
        assert gpu._ordered == len(gpu._makers) + 1
    gpu._end_spares()
    gpu.runner().end()
    assert gpu._ordered == len(gpu._makers) + 1, "those that were being opened meanwhile count"
