"""The verbs of training: `kernelwright train pretrain CONFIG`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.cli.options import path_option
from kernelwright.cli.whole_help import WholeHelp

train_app = typer.Typer(help="Train models on kernels.", no_args_is_help=True, rich_markup_mode=None, cls=WholeHelp)


@train_app.callback()
def _root() -> None:
    pass


@train_app.command("pretrain")
def train_pretrain(
    config: Annotated[str, typer.Argument(help="Settings: a .yaml or .toml file, or starter, base or tiny.")],
    out: Annotated[Path, path_option("Folder of the checkpoint; an existing run is resumed.", metavar="DIR")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Train a small model from scratch: make pairs, a tokenizer and tokenised shards, then train on them.

    Writes a checkpoint in Hugging Face's format, with log.jsonl, training.json and a model card. The same command
    continues an interrupted run. For several GPUs: accelerate launch -m kernelwright.cli train pretrain ...
    """
    from kernelwright.config import load_config
    from kernelwright.training.pretrain.job import pretrain
    from kernelwright.training.pretrain.settings import PretrainSettings, config_path
    from kernelwright.training.smallness import tell_of_shape

    wanted = load_config(config_path(config), settings or [], PretrainSettings)
    m = wanted.model
    key_width = m.hidden // m.heads * m.kv_heads
    tell_of_shape(wanted.tokenizer.vocabulary, m.hidden, m.layers, key_width, m.feed_forward)
    result = pretrain(wanted, out)
    if as_json:
        print(json.dumps(result.facts))
    else:
        f = result.facts
        print(f"{out}: {f['updates']} updates, {f['tokens']:,} tokens, held-out loss {f['held_out_loss']:.4f}")
    sys.stdout.flush()
