"""Judges twelve correct kernels and sixty planted bugs in them, without a GPU.

    python benchmarks/planted_bugs.py [--out benchmarks/results/planted_bugs.json] [--table docs/planted_bugs.md]

A bug is *flagged* when its verdict is not `correct`, and *named* when a finding of the right kind names a line that
takes part in it (bugs that only values can show have no such finding). The originals must be correct and without a
finding.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.planted import MUTANTS, ORIGINALS, Mutant, Original, named

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Evaluation


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
        "rule": finding.rule if finding else "",
        "line": finding.line if finding else None,
        "reason": result.reason[:240],
        "seconds": result.seconds.total,
    }


def judge_all(seed: int) -> dict[str, Any]:
    """Returns the verdicts of all originals and mutants."""
    started = time.monotonic()
    with Evaluator(EvalOptions(backend="cpu", seed=seed)) as evaluator:
        originals = [(o, evaluator.evaluate(o.task(), o.candidate())) for o in ORIGINALS]
        mutants = [row(o, m, evaluator.evaluate(o.task(), o.candidate(m))) for o, m in MUTANTS]
    with_rules = [r for r in mutants if r["named"] is not None]
    return {
        "seed": seed,
        "originals": len(originals),
        "originals_correct": sum(r.verdict == "correct" for _o, r in originals),
        "originals_with_findings": [
            {"kernel": o.name, "verdict": r.verdict, "reason": r.reason, "findings": [f.rule for f in r.findings]}
            for o, r in originals
            if r.verdict != "correct" or r.findings
        ],
        "mutants": len(mutants),
        "flagged": sum(r["flagged"] for r in mutants),
        "with_a_line_to_name": len(with_rules),
        "named": sum(r["named"] for r in with_rules),
        "missed": [f"{r['kernel']}/{r['mutant']}" for r in mutants if not r["flagged"]],
        "not_named": [f"{r['kernel']}/{r['mutant']}" for r in with_rules if not r["named"]],
        "seconds": round(time.monotonic() - started, 1),
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
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/planted_bugs.json"))
    parser.add_argument("--table", type=Path, help="also write a Markdown table")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result = judge_all(options.seed)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.table:
        options.table.write_text(table(result))
    print({k: v for k, v in result.items() if k != "rows"})
    good = result["flagged"] >= 58 and result["originals_correct"] == len(ORIGINALS)
    return 0 if good and not result["originals_with_findings"] else 1


if __name__ == "__main__":
    sys.exit(main())
