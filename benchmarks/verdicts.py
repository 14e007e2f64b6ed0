"""Records the verdict of every candidate set on the CPU, so that two states of the code can be compared.

    python benchmarks/verdicts.py collect CASES.jsonl [--rows ROWS.jsonl]
    python benchmarks/verdicts.py judge CASES.jsonl VERDICTS.jsonl [--jobs 2] [--only SET...]
    python benchmarks/verdicts.py compare BEFORE.jsonl AFTER.jsonl

`collect` writes the bundled, honest, planted, adversarial and corpus candidates with their tasks, and the candidates of
a JSONL file in KernelBench's format (`--rows`). `judge` needs nothing but that file, so an older checkout can judge
the same cases. It continues an interrupted run. `compare` prints the cases whose record differs and exits with 1 if
there are any. A record holds the verdict, the workloads with their results, and the rule, severity, line and workload
of each finding; it holds no wording and no time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, SourceFile, Task
from kernelwright.tasks import candidate_from_text, load_candidate, load_task

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261128
SHORT = {"timeout": 5.0, "build_timeout": 10.0, "memory_mb": 512}
"""Limits of the adversarial candidates: many of them use up all of their time."""
USUAL = {"timeout": 60.0}
"""The other candidates get more time than they need, so that a busy machine changes no verdict."""
Case = tuple[str, str, Task, Candidate]


def bundled() -> Iterator[Case]:
    folder = ROOT / "src" / "kernelwright" / "data" / "candidates"
    expected = tomllib.loads((folder / "expected.toml").read_text())
    for name in sorted(p.name for p in folder.iterdir() if p.is_dir()):
        for path in sorted((folder / name).iterdir()):
            if path.suffix in (".py", ".cu", ".cpp"):
                yield "bundled", f"{name}/{path.name}", load_task(name), load_candidate(path)
    assert expected


def honest() -> Iterator[Case]:
    from honest_sources import HONEST
    from sets.honest import CASES
    from tasks import TASKS

    for name, (task, source) in HONEST.items():
        yield "honest", name, Task(task_id=task, source=TASKS[task]), candidate_from_text(source, name)
    for case in CASES:
        if not case.needs:
            yield "honest", f"family/{case.name}", case.task(), case.candidate()


def planted() -> Iterator[Case]:
    from sets.planted import MUTANTS, ORIGINALS

    for original in ORIGINALS:
        yield "planted", original.name, original.task(), original.candidate()
    for original, mutant in MUTANTS:
        yield "planted", f"{original.name}/{mutant.name}", original.task(), original.candidate(mutant)


def adversarial() -> Iterator[Case]:
    from attacks import ATTACKS
    from exploits import EXPLOITS
    from shortcuts import SHORTCUTS
    from tasks import task
    from tricks import TRICKS

    for one in (*EXPLOITS, *SHORTCUTS, *TRICKS, *ATTACKS):
        if one.where == "both":
            yield "adversarial", one.name, task(one.task, one.policy), candidate_from_text(one.source, one.name)


def corpus() -> Iterator[Case]:
    from sets.corpus import MUTANTS, RIGHT

    for member in (*RIGHT, *MUTANTS):
        yield "corpus", member.name, member.task(), member.candidate()


def rows(path: Path) -> Iterator[Case]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row.get("llm_candidate"):
            name = f"level{row['level']}-{row['problem_id']}"
            task = Task(task_id=name, source=row["reference"])
            yield "rows", name, task, candidate_from_text(row["llm_candidate"], name)


def collect(path: Path, extra: Path | None) -> None:
    for folder in ("tests", "tests/adversarial"):
        sys.path.insert(0, str(ROOT / folder))
    found = [*bundled(), *honest(), *planted(), *adversarial(), *corpus(), *(rows(extra) if extra else ())]
    with path.open("w") as file:
        for group, name, task, candidate in found:
            source = candidate.sources[0]
            made = {
                "task": {"task_id": task.task_id, "source": task.source, "policy": task.policy,
                         "tolerance": task.tolerance, "function": task.function},
                "candidate": {"path": source.path, "content": source.content, "language": candidate.language,
                              "entry_point": candidate.entry_point},
            }  # fmt: skip
            file.write(json.dumps({"set": group, "name": name, **made}) + "\n")
    print(dict(Counter(group for group, *_ in found)))


def record(result: Evaluation | TaskError) -> dict[str, Any]:
    """Returns the facts that must not change from one state of the code to another."""
    if isinstance(result, TaskError):
        return {"verdict": "task_error"}
    return {
        "verdict": result.verdict,
        "workloads": [[w.name, w.scope, w.distribution, w.passed] for w in result.workloads],
        "findings": [[f.rule, f.severity, f.line, f.workload] for f in result.findings],
    }


def judge(cases: Path, out: Path, jobs: int, only: list[str]) -> None:
    done = {json.loads(line)["case"] for line in out.read_text().splitlines()} if out.exists() else set()
    left = [json.loads(line) for line in cases.read_text().splitlines()]
    left = [c for c in left if f"{c['set']}: {c['name']}" not in done and (not only or c["set"] in only)]
    for short in (False, True):
        chosen = [c for c in left if (c["set"] == "adversarial") == short]
        limits = SHORT if short else USUAL
        options = EvalOptions(backend="cpu", seed=SEED, **limits)
        with Evaluator(options) as evaluator, out.open("a") as file:
            results = evaluate_many((_pair(c) for c in chosen), pool=evaluator, jobs=jobs)
            for case, result in zip(chosen, results, strict=True):
                name = f"{case['set']}: {case['name']}"
                reason = result.reason if isinstance(result, Evaluation) else str(result)
                file.write(json.dumps({"case": name, **record(result), "reason": reason[:200]}) + "\n")
                file.flush()


def _pair(case: dict[str, Any]) -> tuple[Task, Candidate]:
    made = case["candidate"]
    source = SourceFile(path=made["path"], content=made["content"])
    candidate = Candidate(sources=(source,), language=made["language"], entry_point=made["entry_point"])
    return Task(**case["task"]), candidate


def compare(before: Path, after: Path) -> int:
    old, new = ({r.pop("case"): r for r in map(json.loads, p.read_text().splitlines())} for p in (before, after))
    differing = 0
    for name in sorted(set(old) | set(new)):
        sides = [({k: v for k, v in r.items() if k != "reason"} if r else None) for r in (old.get(name), new.get(name))]
        if sides[0] != sides[1]:
            differing += 1
            print(f"{name}\n  before {json.dumps(old.get(name))}\n  after  {json.dumps(new.get(name))}")
    print(f"{len(old)} cases before, {len(new)} after, {differing} differ")
    return int(differing > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    collecting = verbs.add_parser("collect")
    collecting.add_argument("cases", type=Path)
    collecting.add_argument("--rows", type=Path)
    judging = verbs.add_parser("judge")
    judging.add_argument("cases", type=Path)
    judging.add_argument("out", type=Path)
    judging.add_argument("--jobs", type=int, default=2)
    judging.add_argument("--only", nargs="*", default=[])
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.verb == "compare":
        return compare(options.before, options.after)
    if options.verb == "collect":
        collect(options.cases, options.rows)
    else:
        judge(options.cases, options.out, options.jobs, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
