"""The verbs of post-training: `kernelwright train sft CONFIG`, `train dpo CONFIG`, `train rl CONFIG`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.cli.options import path_option
from kernelwright.cli.train import train_app
from kernelwright.training.smallness import tell_of_model

__all__ = ["train_app"]

SFT_SETTINGS = "Settings: a .yaml or .toml file, or a recipe: cuset, concur, stanford_sft, starter_sft."
RL_SETTINGS = (
    "Settings: a .yaml or .toml file, or a recipe: kevin, drkernel, stanford_grpo, starter_rl, "
    "cuda_agent_rft, starter_rft."
)
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Out = Annotated[Path | None, path_option("Folder of the run; default: runs/ and the settings' name.", metavar="DIR")]
Processes = Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="Processes on this machine, one per GPU.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@train_app.command("sft")
def train_sft(
    config: Annotated[str, typer.Argument(help=SFT_SETTINGS)],
    out: Out = None,
    settings: Settings = None,
    processes: Processes = 1,
    explain: Annotated[
        int | None, typer.Option(metavar="N", help="Write a heat map of row N (from 0) as HTML instead of training.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fine-tune a causal model on prompts and answers, with a loss by name: sft, dft, profit, eaft, asft or cuset.

    Lists rows that cannot be trained on in bad_rows.jsonl. The same command continues an interrupted run from its last
    checkpoint. With --processes N, N GPUs share the batch of an update, whose size stays the same.
    """
    from kernelwright.config import load_config
    from kernelwright.training.fine_tune.settings import SftSettings, recipe_path

    wanted = load_config(recipe_path(config), settings or [], SftSettings)
    tell_of_model(wanted.model.path)
    run = out or Path("runs") / wanted.name
    if explain is not None:
        _explain(wanted, run, explain, as_json)
        return
    from kernelwright.training.processes import train

    _show(train(wanted, run, processes), run, "held_out_nll", as_json)


@train_app.command("dpo")
def train_dpo(
    config: Annotated[str, typer.Argument(help="Settings: a .yaml or .toml file, or a recipe: dpo, mdpo.")],
    out: Out = None,
    settings: Settings = None,
    processes: Processes = 1,
    as_json: Json = False,
) -> None:
    """Fine-tune a model on pairs of a preferred and a rejected answer, or of whole rollouts, as curate writes them.

    Lists bad pairs in bad_rows.jsonl. The same command continues an interrupted run.
    """
    from kernelwright.config import load_config
    from kernelwright.training.fine_tune.settings import DpoSettings, recipe_path
    from kernelwright.training.processes import train

    wanted = load_config(recipe_path(config), settings or [], DpoSettings)
    tell_of_model(wanted.model.path)
    run = out or Path("runs") / wanted.name
    _show(train(wanted, run, processes), run, "held_out_accuracy", as_json)


def _show(facts: dict[str, Any], folder: Path, held_out: str, as_json: bool) -> None:
    """Prints a run's facts, as JSON or as one line."""
    if as_json:
        print(json.dumps(facts))
    else:
        line = f"{folder}: {facts['updates']} updates of {facts['loss_name']}, loss {facts['loss']:.4f}"
        if held_out in facts:
            line += f", {held_out.replace('held_out_', 'held-out ')} {facts[held_out]:.4f}"
        if facts.get("bench"):
            last = facts["bench"][-1]
            line += "".join(f", {name} {last[name]:.1%}" for name in ("compiled@1", "pass@1") if name in last)
        print(line)
    sys.stdout.flush()


def _explain(settings: object, folder: Path, number: int, as_json: bool) -> None:
    from kernelwright.training.fine_tune.explain import explain, write_page
    from kernelwright.training.fine_tune.settings import SftSettings

    assert isinstance(settings, SftSettings)
    trained = str(folder) if (folder / "training.json").is_file() and (folder / "config.json").is_file() else None
    found = explain(settings, number, trained)
    path = write_page(found, folder / f"explain-{number}.html")
    if as_json:
        print(json.dumps({"row": found.name, "page": str(path), "loss": found.loss, **found.stats}))
    else:
        print(f"{path}: {len(found.tokens)} tokens of {found.name} under {trained or settings.model.path}")


@train_app.command("rl")
def train_rl(
    config: Annotated[str, typer.Argument(help=RL_SETTINGS)],
    out: Out = None,
    settings: Settings = None,
    processes: Processes = 1,
    as_json: Json = False,
) -> None:
    """Train a model by reinforcement learning on its own kernels: play, judge, reward, credit each turn, update.

    The same command continues an interrupted run: finished rollouts are on disk and not played again. With
    --processes N, N GPUs share the rollouts and rows of a step, whose size stays the same.
    """
    from kernelwright.config import load_config
    from kernelwright.training.fine_tune.settings import recipe_path
    from kernelwright.training.rl.settings import RlSettings

    wanted = load_config(recipe_path(config), settings or [], RlSettings)
    tell_of_model(wanted.model.path)
    run = out or Path("runs") / wanted.name
    if wanted.rejection is not None:
        from kernelwright.training.rejection import train_rejection

        facts = train_rejection(wanted, run, processes)
    else:
        from kernelwright.training.processes import train

        facts = train(wanted, run, processes)
    print(json.dumps(facts) if as_json else f"{run}: {_rl_line(facts)}")
    sys.stdout.flush()


def _rl_line(facts: dict[str, Any]) -> str:
    reward = f"{facts['last_reward']:.3f}" if "last_reward" in facts else "none"
    why = f", stopped by its alarms: {', '.join(facts['stopped_by'])}" if facts["stopped_by"] else ""
    more = f", then tuned on {facts['chosen']['rows']} answers" if "chosen" in facts else ""
    return f"{facts['steps']} steps, {facts['rollouts']} rollouts, reward {reward}{why}{more}"
