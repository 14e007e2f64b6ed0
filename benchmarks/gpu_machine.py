"""Records on a GPU, in calls of a few minutes, the results with which the functional machine is compared.

    python benchmarks/gpu_machine.py OUT [--parts opcodes,corpus,triton] [--jobs 10] [--seconds 560]

Three parts run concurrently, each with its log in OUT: `opcodes` (tests/sets/opcodes/record.py) writes opcodes.json,
`corpus` (benchmarks/judge_corpus.py) corpus_gpu.json, and `triton` (benchmarks/triton_cpu.py, if it exists)
triton_gpu.json. Members in corpus_gpu.json of an earlier call are not judged again. Nothing is timed, so the parts may
share the GPU. `--dry-run` does the same without a GPU, on a few members.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = HERE / "results" / "corpus_cpu.json.gz"


def commands(args: argparse.Namespace) -> dict[str, list[str]]:
    """Returns the parts' command lines; a part whose script is missing is left out."""
    out, limit = args.out, args.seconds
    opcodes = ["opcodes/record.py", out / "opcodes.json", "--jobs", "4"]
    corpus = ["judge_corpus.py", "--json", out / "corpus_gpu.json", "--jobs", args.jobs, "--seconds", limit - 60]
    corpus += ["--resume", out / "corpus_gpu.json"]
    corpus += ["--sizes", SIZES] if SIZES.exists() else []
    triton = ["triton_cpu.py", "--backend", "gpu", "--no-interpreter", "--json", out / "triton_gpu.json"]
    if args.dry_run:
        opcodes += ["--device", "machine", "--family", "integer", "control"]
        corpus += ["--backend", "host", "--only", "map-relu", "tree-sum", "honest-gelu"]
        triton = []
    else:
        corpus += ["--backend", "gpu"]
    lines = {"opcodes": opcodes, "corpus": corpus, "triton": triton}
    return {
        part: [sys.executable, str(HERE / line[0]), *map(str, line[1:])]
        for part, line in lines.items()
        if part in args.parts.split(",") and line and (HERE / line[0]).exists()
    }


def hardware() -> dict[str, object]:
    import torch

    if not torch.cuda.is_available():
        return {"gpu": "none", "cores": os.cpu_count()}
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
    }


def finished(process: subprocess.Popen[bytes], until: float) -> int:
    """Returns the exit status; a part that is late is killed with its children, and gives 124."""
    try:
        return process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):  # its last process has just ended
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        return 124


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default="opcodes,corpus,triton")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=560.0)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    running = {}
    for part, line in commands(args).items():
        with open(args.out / f"{part}.log", "wb") as log:
            running[part] = subprocess.Popen(
                line, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
    facts: dict[str, object] = {}
    try:
        facts = hardware()
    except Exception as error:  # the parts matter more than their description
        facts = {"gpu": f"not known: {error}"}
    status = 0
    for part, process in running.items():
        code = finished(process, began + args.seconds)
        status |= code
        facts[part] = {"exit": code, "seconds_at_end": round(time.monotonic() - began, 1)}
        print(f"{part}: exit {code} after {time.monotonic() - began:.0f} s", flush=True)
        print("\n".join((args.out / f"{part}.log").read_text(errors="replace").splitlines()[-6:]), flush=True)
    (args.out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
