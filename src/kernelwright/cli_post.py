"""The verbs of post-training: `kernelwright train sft CONFIG`, `train rl CONFIG`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.cli_train import train_app

__all__ = ["train_app"]

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]


@train_app.command("sft")
def train_sft(
    config: Annotated[str, typer.Argument(help="Settings: a .yaml or .toml file, or a recipe: cuset, concur, …")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/ and the settings' name.")] = None,
    settings: Settings = None,
    explain: Annotated[
        int | None, typer.Option(metavar="N", help="Train nothing: write a heat map of row N (from 0) as HTML.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Fine-tune a causal model on prompts and answers, with a loss by name: sft, dft, profit, eaft, asft or cuset.

    Rows that cannot be trained on are counted and named, in bad_rows.jsonl. Stopped at any moment, the same command
    goes on from the last checkpoint. For several GPUs: accelerate launch -m kernelwright.cli train sft ...
    """
    from kernelwright.config import load_config
    from kernelwright.training.post_settings import SftSettings, recipe_path

    wanted = load_config(recipe_path(config), settings or [], SftSettings)
    folder = out or Path("runs") / wanted.name
    if explain is not None:
        _explain(wanted, folder, explain, as_json)
        return
    from kernelwright.training.sft import train_sft as train

    facts = train(wanted, folder).facts
    if as_json:
        print(json.dumps(facts))
    else:
        held = f", held-out nll {facts['held_out_nll']:.4f}" if "held_out_nll" in facts else ""
        print(f"{folder}: {facts['updates']} updates of {facts['loss_name']}, loss {facts['loss']:.4f}{held}")
    sys.stdout.flush()


def _explain(settings: object, folder: Path, number: int, as_json: bool) -> None:
    from kernelwright.training.explain import explain, write_page
    from kernelwright.training.post_settings import SftSettings

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
    config: Annotated[str, typer.Argument(help="Settings: a .yaml or .toml file, or a recipe: kevin, drkernel, …")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/ and the settings' name.")] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Train a model on what its own kernels turn out to be: play, judge, reward, credit each turn, update.

    Stopped at any moment, the same command goes on: finished rollouts are on disk and not played again.
    """
    from kernelwright.config import load_config
    from kernelwright.training.post_settings import recipe_path
    from kernelwright.training.rl_settings import RlSettings

    wanted = load_config(recipe_path(config), settings or [], RlSettings)
    folder = out or Path("runs") / wanted.name
    from kernelwright.training.rl import show
    from kernelwright.training.rl import train_rl as train

    result = train(wanted, folder)
    if as_json:
        print(json.dumps(result.facts))
    else:
        show(result, folder)
