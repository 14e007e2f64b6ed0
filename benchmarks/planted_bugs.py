"""Judges correct kernels and planted bugs in them, without a GPU.

    python benchmarks/planted_bugs.py [--set blind] [--seeds 3] [--only NAME] [--out FILE] [--table FILE.md]

`known`: twelve kernels and sixty bugs that the machine was tuned with. `blind`: 31 kernels and 154 bugs that were
written before any of them was judged. A bug is *flagged* when its verdict is not `correct`. It is *named* when a
finding of the right kind names a line that takes part in it, and *named first* when that is the finding that decides
(bugs that only values can show have no such finding). The originals must be correct under every seed, with no finding
but information.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets import planted, planted_blind
from sets.planted import Mutant, Original, named

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Evaluation

SETS = {"known": planted, "blind": planted_blind}


def row(original: Original, mutant: Mutant, result: Evaluation) -> dict[str, Any]:
    finding = result.findings[0] if result.findings else None
    return {
        "kernel": original.name,
        "mutant": mutant.name,
        "kind": mutant.kind,
        "hidden_on_a_gpu": mutant.hidden,
        "verdict": result.verdict,
        "flagged": result.verdict != "correct",
        "named": named(original, mutant, result) if mutant.rules else None,
        "first": named(original, mutant, result, first=True) if mutant.rules else None,
        "rule": finding.rule if finding else "",
        "line": finding.line if finding else None,
        "wanted": [list(mutant.rules), list(original.lines(mutant))],
        "reason": result.reason[:240],
        "seconds": result.seconds.total,
    }


def originals(chosen: Sequence[Original], seed: int) -> list[dict[str, Any]]:
    """Returns the verdicts of the originals under one seed."""
    with Evaluator(EvalOptions(backend="cpu", seed=seed)) as evaluator:
        judged = [(o, evaluator.evaluate(o.task(), o.candidate())) for o in chosen]
    return [
        {
            "kernel": o.name,
            "seed": seed,
            "verdict": r.verdict,
            "reason": r.reason,
            "findings": [f.rule for f in r.findings if f.severity != "info"],
            "seconds": r.seconds.total,
        }
        for o, r in judged
    ]


def judge_all(name: str, seeds: int, only: str) -> dict[str, Any]:
    """Returns the verdicts of a set's originals, under each seed, and of its mutants."""
    started = time.monotonic()
    chosen = [o for o in SETS[name].ORIGINALS if only in o.name]
    honest = [line for seed in range(seeds) for line in originals(chosen, seed)]
    with Evaluator(EvalOptions(backend="cpu", seed=0)) as evaluator:
        pairs = [(o, m) for o in chosen for m in o.mutants]
        mutants = [row(o, m, evaluator.evaluate(o.task(), o.candidate(m))) for o, m in pairs]
    with_rules = [r for r in mutants if r["named"] is not None]
    return {
        "set": name,
        "seeds": seeds,
        "originals": len(chosen),
        "originals_judged": len(honest),
        "originals_correct": sum(r["verdict"] == "correct" for r in honest),
        "originals_with_findings": [r for r in honest if r["verdict"] != "correct" or r["findings"]],
        "mutants": len(mutants),
        "flagged": sum(r["flagged"] for r in mutants),
        "with_a_line_to_name": len(with_rules),
        "named": sum(r["named"] for r in with_rules),
        "named_first": sum(r["first"] for r in with_rules),
        "missed": [f"{r['kernel']}/{r['mutant']}" for r in mutants if not r["flagged"]],
        "not_named_first": [f"{r['kernel']}/{r['mutant']}" for r in with_rules if not r["first"]],
        "seconds": round(time.monotonic() - started, 1),
        "honest": honest,
        "rows": mutants,
    }


def table(result: dict[str, Any]) -> str:
    lines = ["| kernel | planted bug | kind | verdict | finding |", "|---|---|---|---|---|"]
    for r in result["rows"]:
        mark = "" if r["named"] is None else " ✓" if r["named"] else " (another line)"
        where = f"`{r['rule']}`, line {r['line']}{mark}" if r["rule"] else "values only" if r["flagged"] else "none"
        lines.append(f"| {r['kernel']} | {r['mutant']} | {r['kind']} | {r['verdict']} | {where} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", choices=sorted(SETS), default="known", dest="name")
    parser.add_argument("--seeds", type=int, default=1, help="seeds under which the originals are judged")
    parser.add_argument("--only", default="", help="only kernels whose name holds this text")
    parser.add_argument("--out", type=Path, help="benchmarks/results/planted_bugs[_blind].json if left out")
    parser.add_argument("--table", type=Path, help="also write a Markdown table")
    options = parser.parse_args()
    result = judge_all(options.name, options.seeds, options.only)
    suffix = "" if options.name == "known" else f"_{options.name}"
    out = options.out or Path(f"benchmarks/results/planted_bugs{suffix}.json")
    out.write_text(json.dumps(result, indent=1) + "\n")
    if options.table:
        options.table.write_text(table(result))
    print({k: v for k, v in result.items() if k not in ("rows", "honest")})
    good = result["flagged"] >= 0.96 * result["mutants"]
    return 0 if good and not result["originals_with_findings"] else 1


if __name__ == "__main__":
    sys.exit(main())
