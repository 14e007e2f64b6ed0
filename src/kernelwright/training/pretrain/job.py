"""Pre-training from scratch: pairs, tokenizer, shards, then Muon and AdamW over packed pairs.

One process per GPU, through accelerate (`accelerate launch -m kernelwright.cli train pretrain …` for several); updates
do not depend on the number of processes, up to rounding. A run stopped at any moment resumes from its last state:
weights, optimizers, the number of the update (which determines the data order), and the total number of updates.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError, StoreError
from kernelwright.runs.folders import claim
from kernelwright.training.pretrain.preparing import Prepared, open_data, prepare_data
from kernelwright.training.pretrain.progress import Live
from kernelwright.training.pretrain.settings import PretrainSettings
from kernelwright.training.pretrain.shards import LOST


@dataclass(frozen=True)
class PretrainResult:
    """A finished run: its folder and the facts of `training.json`."""

    folder: Path
    facts: dict[str, Any]


def pretrain(settings: PretrainSettings, out: Path, *, shown: bool = True) -> PretrainResult:
    """Starts or resumes a run in the folder `out`. Raises `ConfigError` and `StoreError`.

    Leaves in `out`: the checkpoint in Hugging Face's format, `log.jsonl`, `training.json`, `README.md`; and `data/`
    (tokenised pairs) and `state/`, which are needed only to resume.
    """
    finished = _settle(settings, out)
    if finished is not None:
        return PretrainResult(out, finished)
    main = int(os.environ.get("RANK", "0")) == 0
    live = Live(shown and main)
    try:
        began = time.monotonic()
        if main:  # before accelerate starts: other processes may wait for minutes
            prepare_data(settings, out / "data", live.say)
        prepared = time.monotonic() - began
        facts = _train(settings, out, live)
        facts["seconds"]["preparing"] = round(prepared, 1)
        if main:
            _finish(settings, out, facts)
    finally:
        live.close()
    return PretrainResult(out, facts)


def _settle(settings: PretrainSettings, out: Path) -> dict[str, Any] | None:
    """Claims a folder that is new or this run's. Returns the facts of a finished run, else None.

    Raises `ConfigError` and `StoreError`.
    """
    from kernelwright.training.checkpoint import write_json

    wanted = settings.model_dump(mode="json")
    kept, done = out / "settings.json", out / "training.json"
    claim(out, kept.name)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if kept.exists() and json.loads(kept.read_text()) != wanted:
            raise ConfigError(
                f"{str(out)!r} holds a run with other settings", hint="name another folder, or remove this one"
            )
        if kept.exists() and done.exists():
            return dict(json.loads(done.read_text()))
        write_json(kept, wanted)
    except (OSError, ValueError) as error:
        raise StoreError(f"{str(out)!r} cannot be used: {error}", hint="name another folder") from error
    return None


def _train(settings: PretrainSettings, out: Path, live: Live) -> dict[str, Any]:
    """Makes all updates. Returns the facts of the run."""
    from datetime import timedelta

    import torch
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs

    from kernelwright.training.pretrain.run import Run

    patience = InitProcessGroupKwargs(timeout=timedelta(hours=2))
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[patience])
    try:
        accelerator.wait_for_everyone()
        data = open_data(settings, out / "data")
        run = Run(settings, out, accelerator, data, live)
        facts = run.play()
        if accelerator.is_main_process:
            facts["pairs"] = _pair_facts(settings, data)
            run.export()
        accelerator.wait_for_everyone()
    finally:
        accelerator.end_training()
    return facts


def _pair_facts(settings: PretrainSettings, data: Prepared) -> dict[str, Any]:
    lengths = data.training.lengths[data.training.usable]
    prompt, answer = (float(x) for x in lengths.mean(0))
    tasks = len(data.training.lengths) + sum(n for why, n in data.skipped.items() if not why.startswith(LOST))
    return {
        "training": len(lengths),
        "longer_than_a_row": data.left_out,
        "held_out": len(data.held_out.usable),
        "mean_prompt_tokens": round(prompt, 1),
        "mean_answer_tokens": round(answer, 1),
        "source": data.describe,
        "against": [Path(suite).name for suite in settings.data.against],
        "one_operator": settings.data.one_operator,
        "skipped": data.skipped,
        "share_too_near": round(data.skipped.get("contaminated", 0) / max(1, tasks), 4),
    }


def _finish(settings: PretrainSettings, out: Path, facts: dict[str, Any]) -> None:
    from kernelwright.training.card import write_card
    from kernelwright.training.checkpoint import write_json

    facts |= {"name": settings.name, "note": settings.note}
    write_card(out, facts)
    write_json(out / "training.json", facts)
