"""Writes the tables of docs/kernel_speed.md from the results of the scripts that measure speed.

    python docs/make_kernel_speed.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`; the text around it is written by hand. What has no
result yet is `not measured`. `tests/test_kernel_speed.py` fails where the page is out of date.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernel_speed.md"
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT / "benchmarks"))

from result_file import read_json  # noqa: E402

Row = dict[str, Any]
NOT_MEASURED = "not measured"
SETS = {"dev80": "80 development problems", "chains": "200 chains"}
POLICIES = {"template": "solution library", "starter": "starter, greedy"}
SLOW = 0.9
REASONS: dict[tuple[str, str], str] = {}
"""Why a family of a set is slower than `SLOW` times eager, by set and family; each reason is a measured one."""


def result(name: str) -> Row | None:
    """Returns the value of a results file, compressed or not; None where there is none."""
    for path in (RESULTS / f"{name}.json", RESULTS / f"{name}.json.gz"):
        if path.exists():
            found: Row = read_json(path)
            return found
    return None


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value: float | None) -> str:
    """Returns three significant digits, or a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:,.0f}"


def estimate(found: Row | None, percent: bool = False) -> str:
    """Returns an estimate with its interval."""
    if found is None:
        return NOT_MEASURED
    values = [found[name] for name in ("value", "low", "high")]
    shown = [f"{100 * v:.0f} %" if percent else number(v) for v in values]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def geometric_mean(values: Sequence[float]) -> float | None:
    """Returns the geometric mean; None without values."""
    return statistics.geometric_mean(values) if values else None


def sets() -> str:
    """Returns the table of both sets and policies."""
    rows = []
    for name, words in SETS.items():
        for policy, whose in POLICIES.items():
            found = (result(f"kernel_speed_{name}_{policy}") or {}).get("summary", {})
            shares = [estimate(found.get(key), percent=True) for key in ("correct", "fast_1_eager", "fast_1_compile")]
            ratios = [estimate(found.get(key)) for key in ("over_eager", "over_compile")]
            rows.append([words, whose, str(found.get("tasks", "–")), shares[0], *ratios, *shares[1:]])
    head = ("set", "who", "judged", "correct", "over eager", "over compile", "fast_1 eager", "fast_1 compile")
    return table(head, rows)


def families(name: str) -> str:
    """Returns the table of one set's families, as the solution library answers them."""
    found = (result(f"kernel_speed_{name}_template") or {}).get("summary", {}).get("families", {})
    rows = []
    for family, one in found.items():
        times = [number(one[key]) for key in ("candidate_ms", "eager_ms", "compile_ms", "floor_ms")]
        over = [number((one[key] or {}).get("value")) for key in ("over_eager", "over_compile")]
        slow = one["over_eager"] is not None and one["over_eager"]["value"] < SLOW
        reason = REASONS.get((name, family), "no reason recorded") if slow else ""
        right = f"{one['correct']['value'] * one['tasks']:.0f} of {one['tasks']}"
        rows.append([family, right, *times, *over, reason])
    head = ("family", "correct", "ours, ms", "eager", "compile", "floor", "over eager", "over compile", "why below 0.9")
    return table(head, rows or [[NOT_MEASURED] + ["–"] * 8])


def cases(name: str, baseline: str, wanted: Callable[[Row], bool] = lambda row: True) -> str:
    """Returns one script's table, a row a case, with the geometric mean of the ratios."""
    rows = [r for r in (result(name) or {}).get("rows", []) if wanted(r)]
    shown = []
    for row in rows:
        if "ms" not in row:
            shown.append([row["case"], "–", "–", "–", "–", row.get("failed", "")[:80].replace("|", "/")])
            continue
        against = baseline if baseline in row["ms"] else "torch"
        each = [row["ms"]["ours"], row["ms"][against], row["ratio"], row["tflops"]["ours"]]
        shown.append([row["case"], *map(number, each), exactness(row, against)])
    if not shown:
        shown = [[NOT_MEASURED] + ["–"] * 5]
    mean = geometric_mean([r["ratio"] for r in rows if "ratio" in r])
    shown.append([f"**geometric mean of {sum('ratio' in r for r in rows)}**", "", "", number(mean), "", ""])
    return table(("case", "ours, ms", f"{baseline}, ms", "ratio", "ours, TFLOP/s", "rms error, ours; theirs"), shown)


def exactness(row: Row, baseline: str) -> str:
    """Returns both root mean square errors, for normal operands where there are several distributions."""
    found = row["errors"].get("normal", row["errors"])
    return "; ".join(f"{found[name]['rms']:.1e}" for name in ("ours", baseline) if name in found)


def distributions() -> str:
    """Returns the largest quotient of our error and cuBLAS's, for each distribution of operands of float32 products."""
    rows = [r for r in (result("products") or {}).get("rows", []) if r.get("dtype") == "float32" and "errors" in r]
    shown = []
    for name in dict.fromkeys(d for r in rows for d in r["errors"]):
        by_row = "_by_row" if name == "mixed rows" else ""
        both = [r["errors"][name] for r in rows]
        worst = [max(quotient(b, f"{kind}{by_row}") for b in both) for kind in ("largest", "rms")]
        shown.append([name, str(len(both)), *map(number, worst)])
    head = ("operands", "products", "our largest error over cuBLAS's, at most", "rms error, at most")
    return table(head, shown or [[NOT_MEASURED, "–", "–", "–"]])


def quotient(both: Row, kind: str) -> float:
    """Returns our error over cuBLAS's; infinite where ours alone is not zero."""
    ours, theirs = both["ours"][kind], both["cublas"][kind]
    return float(ours / theirs) if theirs else math.inf if ours else 1.0


def memory() -> str:
    """Returns the share of a copy's speed that kernels bound by memory reach."""
    rows = [r for r in (result("bandwidth") or {}).get("rows", []) if "share" in r]
    shown = [[r["case"], f"{r['bytes'] / 1e6:.0f}", f"{100 * r['share']:.0f} %", number(r["gain"])] for r in rows]
    middle = f"{100 * statistics.median(r['share'] for r in rows):.0f} %" if rows else NOT_MEASURED
    shown.append([f"**median of {len(rows)}**", "", middle, ""])
    return table(("case", "MB", "share of a copy's speed", "over eager"), shown)


def is_half(row: Row) -> bool:
    """Tells whether a product has 16-bit operands."""
    return row.get("kind") == "half"


TABLES: dict[str, Callable[[], str]] = {
    "sets": sets,
    "dev80": lambda: families("dev80"),
    "chains": lambda: families("chains"),
    "products": lambda: cases("products", "cublas", lambda row: not is_half(row)),
    "large products": lambda: cases(
        "products", "cublas", lambda row: not is_half(row) and row.get("flops", 0) >= 2**37
    ),
    "distributions": distributions,
    "half": lambda: cases("products", "cublas", is_half),
    "convolutions": lambda: cases("convolutions", "cudnn"),
    "attention": lambda: cases("attention_speed", "flash"),
    "memory": memory,
}


def page() -> str:
    """Returns the page with its tables as they must be."""
    pattern = re.compile(r"(<!-- table ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
