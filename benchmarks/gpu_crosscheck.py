"""Runs the candidates of a JSONL file on a GPU with torch's own load_inline, to check CPU verdicts against the facts.

    python benchmarks/gpu_crosscheck.py FILE.jsonl --reference-field reference --candidate-field llm_candidate \
        --id-field problem_id --out facts.json
    python benchmarks/gpu_crosscheck.py --facts facts.json --verdicts cpu.jsonl --out crosscheck.json

Each candidate runs in a process of its own at the task's own size. Recorded are the builds that it attempts, whether
they succeed, and whether its output matches the reference within 1e-3 on three seeds. Untrusted code runs without a
sandbox, so use a throw-away machine. The second form needs no GPU: it joins these facts with the verdicts of
`kernelwright eval --json` on the same rows. A difference between a verdict and a fact is reported, not explained.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROBE = r"""
import json, sys, traceback
import torch
import torch.utils.cpp_extension as cpp
row = json.load(open(sys.argv[1]))
facts = {"builds": [], "calls": []}
torch.backends.cudnn.allow_tf32 = False  # the reference is meant in full float32, as it runs on a CPU
real = cpp.load_inline
def watched(*args, **kwargs):
    try:
        module = real(*args, **kwargs)
    except BaseException as error:
        facts["builds"].append({"ok": False, "error": str(error)})
        raise
    facts["builds"].append({"ok": True})
    return module
cpp.load_inline = watched
try:
    reference, candidate = {}, {}
    exec(compile(row["reference"], "reference.py", "exec"), reference)
    open("candidate.py", "w").write(row["candidate"])
    candidate["__name__"] = "candidate"
    candidate["__file__"] = "candidate.py"
    exec(compile(row["candidate"], "candidate.py", "exec"), candidate)
    torch.manual_seed(1)
    init = reference["get_init_inputs"]()
    torch.manual_seed(2)
    model = reference["Model"](*init).cuda()
    torch.manual_seed(2)
    new = candidate["ModelNew"](*init).cuda()
    for seed in range(3):
        torch.manual_seed(10 + seed)
        inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in reference["get_inputs"]()]
        copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        with torch.no_grad():
            want = model(*inputs)
            got = new(*copies)
            torch.cuda.synchronize()
        same_shape = tuple(want.shape) == tuple(got.shape)
        error = (want.double() - got.double()).abs().max().item() if same_shape else None
        close = same_shape and torch.allclose(want.double(), got.double(), atol=1e-3, rtol=1e-3)
        facts["calls"].append({"shape": same_shape, "dtype": want.dtype == got.dtype, "max_error": error,
                               "close": bool(close)})
except BaseException as error:
    facts["raised"] = f"{type(error).__name__}: {error}"[:2000]
json.dump(facts, open(sys.argv[2], "w"))
"""


def run_one(row: dict[str, Any], timeout: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "row.json").write_text(json.dumps(row))
        (work / "probe.py").write_text(PROBE)
        environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(work / "ext"), "OMP_NUM_THREADS": "1", "MAX_JOBS": "2"}
        environment.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
        command = [sys.executable, "probe.py", "row.json", "facts.json"]
        try:
            subprocess.run(command, cwd=work, env=environment, capture_output=True, timeout=timeout)
            facts = json.loads((work / "facts.json").read_text())
        except subprocess.TimeoutExpired:
            facts = {"raised": f"no end within {timeout:.0f} s"}
        except (OSError, ValueError):
            facts = {"raised": "the process ended without an answer"}
    for build in facts.get("builds", []):
        if not build["ok"]:
            lines = [line for line in build["error"].splitlines() if re.search(r"\berror\b", line)]
            build["error"] = "\n".join(lines[:8] or build["error"].splitlines()[-4:])[:1600]
    return {"id": row["id"], **facts}


def agrees(verdict: str, facts: dict[str, Any]) -> bool | None:
    """Tells whether a GPU's facts confirm a CPU verdict; None for verdicts that concern neither builds nor values."""
    built = all(build["ok"] for build in facts.get("builds", []))
    calls = facts.get("calls", [])
    close = bool(calls) and all(call["close"] for call in calls) and "raised" not in facts
    if verdict == "compile_error":
        return not built
    if verdict == "correct":
        return built and close
    if verdict in ("wrong", "runtime_error"):
        return built and not close
    return None


def join(facts: dict[str, Any], verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the GPU's report with a CPU verdict in each row."""
    said = {str(verdict["item_id"]): verdict for verdict in verdicts}
    rows = []
    for row in facts["rows"]:
        verdict = said[row["id"]]
        joined = {
            "id": row["id"],
            "cpu_verdict": verdict["verdict"],
            "cpu_reason": verdict["reason"][:160],
            "gpu_builds_succeeded": [build["ok"] for build in row.get("builds", [])],
            "gpu_errors": [error_line(b["error"]) for b in row.get("builds", []) if not b["ok"]],
            "gpu_outputs_close": [call["close"] for call in row.get("calls", [])],
            "gpu_max_errors": [call["max_error"] for call in row.get("calls", [])],
            "gpu_raised": row.get("raised", "").split("\n")[0][:160],
            "agrees": agrees(verdict["verdict"], row),
        }
        rows.append(joined)
    return {**facts, "rows": rows}


def error_line(text: str) -> str:
    """Returns the first line of a build's errors, without folders."""
    return re.sub(r"\S*/", "", text.split("\n")[0])[:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--reference-field", default="reference")
    parser.add_argument("--candidate-field", default="candidate")
    parser.add_argument("--id-field", default="id")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=240)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--facts", type=Path)
    parser.add_argument("--verdicts", type=Path)
    args = parser.parse_args()
    if args.facts and args.verdicts:
        verdicts = [json.loads(line) for line in args.verdicts.read_text().splitlines()]
        joined = join(json.loads(args.facts.read_text()), verdicts)
        args.out.write_text(json.dumps(joined, indent=1) + "\n")
        return 0
    if args.file is None:
        parser.error("give a JSONL file, or both --facts and --verdicts")
    import torch

    rows = []
    for line in args.file.read_text().splitlines():
        value = json.loads(line)
        text = value.get(args.candidate_field)
        if text and "load_inline" in text:
            rows.append({"id": str(value[args.id_field]), "reference": value[args.reference_field], "candidate": text})
    report: dict[str, Any] = {
        "benchmark": "gpu_crosscheck",
        "date": datetime.date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "rows": [],
    }
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as executor:
        for facts in executor.map(lambda row: run_one(row, args.timeout), rows):
            report["rows"].append(facts)
            print(json.dumps(facts)[:300], flush=True)
            args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
