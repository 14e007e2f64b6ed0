"""The log of a call's operators and host reads: their sums, and the origin of the data that kernels receive."""

from __future__ import annotations

import numpy as np
import torch

from kernelwright.evaluation.candidate.fake_cuda import FEW, Memory, OperatorLog


def log_of(given: torch.Tensor, weight: torch.Tensor | None = None) -> OperatorLog:
    log = OperatorLog()
    log.adopt([given])
    log.adopt([weight] if weight is not None else [], fixed=True)
    log.begin()
    return log


def test_pieces_add_up() -> None:
    x = torch.randn(1000)
    log = log_of(x)
    with log:
        for i in range(0, 1000, 50):
            torch.relu(x[i : i + 50])
    assert log.report()["pieces"] == [["relu", 1000]]


def test_what_weights_and_sizes_alone_give_is_no_piece() -> None:
    x, weight = torch.randn(1000), torch.randn(1000)
    log = log_of(x, weight)
    with log:
        folded = weight * torch.rsqrt(weight.abs() + 1) + torch.arange(1000) * 2
    assert log.report()["pieces"] == []
    log.handed_over(folded)  # a kernel may have written the call's data there
    with log:
        folded.add_(1)
    assert log.report()["pieces"] == [["add_", 1000]]


def positions(log: OperatorLog, factor: float = 1e-4) -> torch.Tensor:
    with log:
        return torch.cos(torch.outer(torch.arange(200.0), factor ** (torch.arange(0, 64) / 64)))


def test_tables_that_follow_from_sizes_are_nothing() -> None:
    x = torch.randn(500)
    log = log_of(x)
    table = positions(log)
    assert log.seen == [] and log.report()["aside"] > 0
    with log:
        table * x[:1]
    assert log.report()["operators"] == [("mul", 12_800)]


def test_tables_of_numbers_that_were_read_are_work() -> None:
    x = torch.rand(500)
    log = log_of(x)
    with log:
        first = x[0].item()
    positions(log, first)
    assert ("cos", 12_800) in log.report()["operators"]


def test_a_table_that_a_kernel_was_given_is_no_table_any_more() -> None:
    log = log_of(torch.randn(500))
    table = positions(log)
    log.handed_over(table)
    with log:
        table.add_(1)
    assert log.report()["operators"] == [("add_", 12_800)]


def test_few_weights_may_be_worked_on() -> None:
    """The sum of two biases prepares a call, also where the inputs are smaller than the biases."""
    x, weight = torch.randn(16), torch.randn(5000)
    log = log_of(x, weight)
    with log:
        weight[:4000] + weight[1000:]
        assert log.seen == []
        weight + weight
    assert log.report()["operators"] == [("add", 5000)]


def test_what_has_the_form_of_a_table_has_none_of_its_values() -> None:
    log = log_of(torch.randn(500))
    table = torch.from_numpy(np.arange(1000.0))
    log.imported(table)
    with log:
        made = [torch.empty_like(table), table.new_zeros(700), torch.full_like(table, 2.0)]
        copied = made[0].copy_(table)
    assert [log.is_foreign(t, written=False) for t in made] == [True, False, False]
    assert log.is_foreign(copied, written=False) and log.is_foreign(table, written=True)


def test_single_values_that_the_host_reads_add_up() -> None:
    x = torch.randn(FEW + 1)
    log = log_of(x)
    with log:
        assert len([v.item() for v in x[:FEW]]) == FEW
        assert log.report()["operators"] == []
        float(x[FEW])
    assert log.report()["operators"] == [("values read by the host", FEW + 1)]


def test_index_put_computes_where_it_adds() -> None:
    x = torch.randn(500)
    log = log_of(x)
    with log:
        y = torch.zeros(500)
        y.index_put_((torch.arange(500),), x)
        assert log.seen == []
        y.index_put_((torch.arange(500),), x, accumulate=True)
    assert log.seen == [("index_put_", 500)]


def test_kernels_may_get_tables_of_numpy_but_not_what_nobody_made() -> None:
    unseen = torch.zeros(1000)
    log = log_of(torch.zeros(1))
    with log:
        log.handed_over(torch.from_numpy(np.ones(1000, dtype=np.float32)).reshape(10, 100))
        assert log.report()["strangers"] == 0
        log.handed_over(unseen.reshape(10, 100).contiguous())
        log.handed_over(torch.cat([unseen, unseen]))
    assert log.report()["strangers"] == 3000


def test_foreign_values_add_up_however_small_the_pieces() -> None:
    unseen = torch.ones(1000)
    log = log_of(torch.randn(500))
    with log:
        y, z = torch.empty(1000), torch.empty(FEW)
        z.copy_(unseen[:FEW])
        for _ in range(9):
            z.copy_(unseen[:FEW])  # the same piece again is no other one
        assert not log.is_foreign(z, written=False)
        for i in range(0, 1000, 100):
            y[i : i + 100].copy_(unseen[i : i + 100])
    assert log.is_foreign(y, written=False)
    log.handed_over(y)
    assert log.report()["strangers"] == 1000


def test_what_is_only_moved_is_known_until_device_code_stores_there() -> None:
    x = torch.randn(500)
    stored: dict[int, int] = {}
    log = log_of(x)
    log.stored = lambda address: stored.get(address, 0)
    with log:
        moved, computed = x.reshape(20, 25).t().contiguous(), x + 1
        buffer = torch.empty(500)
    assert [log.only_moved(t) for t in (moved, computed, buffer)] == [True, False, True]
    stored[buffer.data_ptr()] = 4
    with log:
        assert not log.only_moved(buffer) and not log.only_moved(buffer.reshape(20, 25).t().contiguous())
    stored[moved.data_ptr()] = 4
    assert not log.only_moved(moved)


def test_what_a_kernel_stored_is_gone_when_all_is_written_over() -> None:
    x = torch.randn(500)
    stored: dict[int, int] = {}
    log = log_of(x)
    log.stored = lambda address: stored.get(address, 0)
    with log:
        y = torch.empty(500)
        stored[y.data_ptr()] = 4
        y[:499].copy_(x[:499])
        assert not log.only_moved(y)
        y.copy_(x)
        assert log.only_moved(y)
        stored[y.data_ptr()] = 8
        assert not log.only_moved(y)
        y.copy_(x + 1)
        assert not log.only_moved(y)


def test_memory_where_a_kernel_wrote_before_is_another_tensors_now() -> None:
    x = torch.randn(500)
    log = log_of(x)
    log.stored = lambda address: 0 if address == x.data_ptr() else 2000
    with log:
        assert log.only_moved(x.clone())


def test_freed_memory_is_forgotten() -> None:
    memory, kept = Memory(), torch.zeros(100)
    lost = torch.zeros(100)
    memory.add(kept)
    memory.add(lost)
    address = lost.data_ptr()
    del lost
    assert kept.view(10, 10) in memory and not memory._places[address]
