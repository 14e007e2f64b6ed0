"""Sums the work of sampled launches by kernel, scaled from the blocks that ran to all blocks of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kernelwright.machine import Allocation, LaunchReport
from kernelwright.machine.runtime import LaunchRecord, three

MOST_KERNELS = 1000
HELD = ("heap_blocks", "heap_bytes")
"""Counters that are a state after the launch, and no sum."""
_PLACE = ("line", "kind", "argument", "allocation", "allocation_bytes")


class SampledWork:
    """The launches of one call. Bytes that a launch reads from an earlier one are counted as `bytes_handed`."""

    def __init__(self) -> None:
        self._launch = 0
        self._writers: dict[int, int] = {}

    def add(
        self,
        records: list[LaunchRecord],
        kernel: str,
        shape: tuple[Sequence[int], Sequence[int], int],
        report: LaunchReport,
        table: Sequence[Allocation],
    ) -> None:
        """Adds a launch to its kernel's record; `shape` is its grid, block and bytes of dynamic shared memory."""
        record = next((r for r in records if r.kernel == kernel), None)
        if record is None:
            if len(records) >= MOST_KERNELS:
                return
            record = LaunchRecord(kernel)
            records.append(record)
        grid, block = three(shape[0]), three(shape[1])
        blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
        ran = max(1, report.counters.get("blocks_run", blocks))
        share = blocks / ran
        record.count += 1
        record.instructions += report.instructions
        record.grid, record.block, record.shared_bytes = grid, block, shape[2]
        more = {name: round(value * share) for name, value in report.counters.items() if name not in HELD}
        more |= {"blocks": blocks, "blocks_run": ran, "warps": blocks * -(-threads // 32)}
        more |= self._moved(report, table, share)
        for name, value in more.items():
            record.counters[name] = record.counters.get(name, 0) + value
        _add_rows(record.lines, [asdict(line) for line in report.lines], share)
        sites = [{**asdict(site), **_allocation(table, site.argument)} for site in report.sites]
        _add_rows(record.sites, sites, share)

    def _moved(self, report: LaunchReport, table: Sequence[Allocation], share: float) -> dict[str, int]:
        """Returns the distinct bytes that a launch reads and writes, and those that an earlier launch has written."""
        self._launch += 1
        sums = {"bytes_read": 0, "bytes_written": 0, "bytes_handed": 0}
        for allocation, read, written in zip(table, report.touched_read, report.touched_written, strict=True):
            taken = min(allocation.nbytes, round(read * share))
            sums["bytes_read"] += taken
            sums["bytes_written"] += min(allocation.nbytes, round(written * share))
            if self._writers.get(allocation.address, self._launch) != self._launch:
                sums["bytes_handed"] += taken
            if written:
                self._writers[allocation.address] = self._launch
        return sums


def _allocation(table: Sequence[Allocation], argument: int) -> dict[str, Any]:
    if not 0 <= argument < len(table):
        return {"allocation": "", "allocation_bytes": 0}
    return {"allocation": table[argument].name, "allocation_bytes": table[argument].nbytes}


def _add_rows(rows: list[dict[str, Any]], more: Sequence[dict[str, Any]], share: float) -> None:
    """Adds scaled rows to those of the same line, and for sites of the same kind and allocation."""
    known = {tuple(row.get(name) for name in _PLACE): row for row in rows}
    for row in more:
        scaled = {name: value if name in _PLACE else round(value * share) for name, value in row.items()}
        old = known.get(tuple(row.get(name) for name in _PLACE))
        if old is None:
            rows.append(scaled)
            continue
        for name, value in scaled.items():
            if name not in _PLACE:
                old[name] += value
