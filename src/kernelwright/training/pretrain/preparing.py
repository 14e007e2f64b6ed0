"""Preparation of a run: the tokenizer, tokenised shards and held-out pairs.

All of it is made once and stored in a folder; a stopped preparation can be resumed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, takewhile
from pathlib import Path

from kernelwright.errors import ConfigError
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.training.pretrain.settings import PretrainSettings
from kernelwright.training.pretrain.shards import BATCH, Shards, Texts, make_shards, read_skipped
from kernelwright.training.pretrain.sources import Source, open_source
from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer
from kernelwright.training.pretrain.workers import Beat, run_jobs

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """The data of a run. `left_out`: the number of pairs longer than a row. `skipped`: tasks without a pair, by
    reason."""

    tokenizer: ChatTokenizer
    training: Shards
    held_out: Shards
    left_out: int
    skipped: dict[str, int]
    describe: str


def prepare_data(settings: PretrainSettings, folder: Path, say: Say) -> Path:
    """Makes the missing parts of `folder`: tokenizer and shards. Raises `ConfigError` and `StoreError`."""
    source = open_source(settings.data)
    folder.mkdir(parents=True, exist_ok=True)
    workers = settings.data.workers or len(os.sched_getaffinity(0))
    _tokenizer(settings, source, folder, workers, say)
    held = folder / "held-out"
    if not list(held.glob("shard-*.pairs.npy")):
        held.mkdir(exist_ok=True)
        # held-out pairs of a corpus are few among many rows, so the worker reports progress rarely
        patience = settings.data.patience * (1 if settings.data.generate is not None else 30)
        make_shards(held, 1, partial(_held_out, source), folder, 1, lambda *_: None, patience)

    def show(done: int, pairs: int, tokens: int) -> None:
        say(f"pairs: {done} of {source.count} shards ({pairs:,} pairs, {tokens:,} tokens)")

    make_shards(folder / "training", source.count, source, folder, workers, show, settings.data.patience)
    return folder


def _tokenizer(settings: PretrainSettings, source: Source, folder: Path, workers: int, say: Say) -> None:
    """Trains the tokenizer on the first pairs, or copies a checkpoint's."""
    if (folder / "tokenizer_config.json").is_file():
        return
    wanted = settings.tokenizer
    if wanted.folder is not None:
        taken = ChatTokenizer.load(Path(wanted.folder)).inner
        say(f"tokenizer: taken from {wanted.folder}")
    else:
        texts = _first_pairs(source, wanted.pairs, workers, settings.data.patience)
        say(f"tokenizer: training on {len(texts):,} pairs")
        taken = train_tokenizer((text for pair in texts for text in pair), wanted.vocabulary)
    save_tokenizer(taken, folder, settings.model.context)


def _held_out(source: Source, number: int, skipped: Counter[str]) -> Iterable[Texts]:
    return source.held_out(skipped)


def _first_pairs(source: Source, wanted: int, workers: int, patience: float) -> list[Texts]:
    """Returns up to `wanted` pairs of the first shards, leaving out shards that cannot be made.

    Stops once the finished shards from 0 on, without a gap, hold enough: the pairs must not depend on workers' speed.
    """
    ended: dict[int, list[Texts]] = {}
    texts: list[Texts] = []
    with closing(run_jobs(partial(_texts, source), range(source.count), workers, patience)) as jobs:
        for job in jobs:
            ended[job.number] = [] if job.lost else [(task, answer) for task, answer in job.value]
            texts = list(chain.from_iterable(ended[n] for n in takewhile(ended.__contains__, count())))
            if len(texts) >= wanted:
                break
    return texts[:wanted]


def _texts(source: Source, number: int, beat: Beat) -> list[Texts]:
    """Returns one shard's pairs; runs in a worker process."""
    made: list[Texts] = []
    for pair in source(number, Counter()):
        made.append(pair)
        if len(made) % BATCH == 0:
            beat()
    return made


def open_data(settings: PretrainSettings, folder: Path) -> Prepared:
    """Opens the data that `prepare_data` made. Raises `ConfigError` if no pair is short enough."""
    longest = min(settings.train.length, settings.model.context)
    training = Shards.open(folder / "training", longest)
    held_out = Shards.open(folder / "held-out", longest)
    if not len(training.usable) or not len(held_out.usable):
        raise ConfigError(
            f"there are {len(training.usable)} pairs to train on and {len(held_out.usable)} held out that have at most "
            f"{longest} tokens",
            hint="raise train.length and model.context, or data.held_out",
        )
    left_out = len(training.lengths) - len(training.usable)
    describe = open_source(settings.data).describe()
    skipped = dict(read_skipped(folder / "training"))
    return Prepared(ChatTokenizer.load(folder), training, held_out, left_out, skipped, describe)
