"""Times layouts of the kernels that are bound by memory: threads, packs and blocks of a row, loads of a thread.

    python benchmarks/bandwidth_layouts.py OUT.json [--only WORD,...] [--seconds 60]

Each case of `bandwidth.py` named here is written with several layouts in place of the chosen one, compiled in
parallel, and timed beside a copy of the same bytes. Rows have raw samples in milliseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from bandwidth import CASES, Case, Clock, bytes_of, chosen, copied, parser
from speed_common import Results, Row, loaded

from kernelwright.solutions import write
from kernelwright.solutions.families.wide import maps, scans
from kernelwright.solutions.families.wide import rows as wide
from kernelwright.solutions.kernels.schedule import TUNED

LAYOUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "softmax_128": ((4, 8), (8, 4), (16, 2), (32, 1)),
    "softmax_1024": ((32, 8), (64, 4), (128, 2), (256, 1)),
    "softmax_4096": ((128, 8), (256, 4), (512, 2), (1024, 1)),
    "softmax_16384": ((512, 8), (1024, 4), (512, 4, 2), (256, 8, 2), (256, 4, 4)),
    "softmax_262144": ((512, 16, 8), (1024, 8, 8)),
    "layer_norm": ((64, 8), (128, 4), (256, 2), (512, 1)),
    "group_norm": ((512, 8, 8), (1024, 4, 8), (512, 4, 16)),
    "rms_norm_channels": ((2, 8), (4, 4), (8, 2), (16, 1)),
    "sum_middle": ((8, 4), (8, 8), (16, 4), (16, 8), (32, 4)),
    "add": ((256, 1), (256, 2), (256, 4), (256, 8), (512, 2), (128, 4)),
    "chain": ((256, 1), (256, 2), (256, 4), (512, 2)),
    "cumsum_4096": ((128, 8), (256, 4), (512, 2)),
    "cumsum_262144": ((512, 4), (512, 8), (1024, 2), (1024, 4)),
}
"""Case -> its layouts: threads, packs and blocks of a row; or threads and loads of an elementwise kernel."""


@contextmanager
def layout_of(case: str, layout: tuple[int, ...]) -> Iterator[None]:
    """Makes the library use a layout while the context is open."""
    kept = wide.contiguous_layout, wide.strided_layout, scans.layout_of, maps.layout_of
    try:
        wide.contiguous_layout = wide.strided_layout = lambda n, held: wide.RowLayout(*layout)  # type: ignore[assignment]
        scans.layout_of = lambda n: (layout[0], layout[1], max(layout[0], 256))  # type: ignore[assignment]
        maps.layout_of = lambda shape: (layout[0], layout[1])  # type: ignore[assignment]
        yield
    finally:
        wide.contiguous_layout, wide.strided_layout, scans.layout_of, maps.layout_of = kept


def rows_of(case: Case, clock: Clock) -> list[Row]:
    """Returns a row for each layout of a case."""
    import torch

    task = loaded(case.source(1.0), f"task_{case.name}")
    texts = []
    for layout in LAYOUTS[case.name]:
        with layout_of(case.name, layout):
            texts.append(write(case.source(1.0), TUNED))
    with torch.device("cuda"), torch.no_grad():
        inputs = task.get_inputs()
    modules = [loaded(text, f"answer_{case.name}_{k}") for k, text in enumerate(texts)]
    models = [module.ModelNew().cuda() for module in modules]

    def compiled(module: Any) -> None:
        for name in module.kernels._names:
            module.kernels.get(name)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compiled, modules))
    found = []
    with torch.no_grad():
        total = bytes_of([*inputs, *models[0].parameters(), models[0](*inputs)])
        copy = copied(total, clock)
        for layout, model in zip(LAYOUTS[case.name], models, strict=True):
            try:
                ours = clock.samples(lambda model=model: model(*inputs))  # type: ignore[misc]
            except Exception as error:  # a layout that the card refuses is a result, too
                found.append({"case": case.name, "layout": layout, "failed": str(error)[:200]})
                continue
            share = statistics.median(copy) / statistics.median(ours)
            found.append({"case": case.name, "layout": layout, "share": round(share, 4), "ours": ours, "copy": copy})
    return found


def main() -> int:
    given = parser(__doc__).parse_args()
    results = Results(given.out, "bandwidth_layouts", ("case", "layout"), given.seconds)
    clock = Clock(10)
    for case in chosen([c for c in CASES if c.name in LAYOUTS], given, results):
        for row in rows_of(case, clock):
            layout = ",".join(map(str, row["layout"]))
            results.add(row, f"{case.name:20s} {layout}: {row.get('share', row.get('failed'))}")
    results.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
