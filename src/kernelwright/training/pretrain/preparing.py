"""Everything that a run needs before its first update: the tokenizer, tokenised shards, held-out pairs.

All of it is kept in a folder and made once; a stopped preparation goes on where it was.
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
    """What a run trains with. `left_out`: pairs longer than a row. `skipped`: what gave no pair, by reason."""

    tokenizer: ChatTokenizer
    training: Shards
    held_out: Shards
    left_out: int
    skipped: dict[str, int]
    describe: str


def prepare_data(settings: PretrainSettings, folder: Path, say: Say) -> Path:
    """Makes what is missing in `folder`, the folder of tokenizer and shards. Raises `ConfigError` and `StoreError`."""
    source = open_source(settings.data)
    folder.mkdir(parents=True, exist_ok=True)
    workers = settings.data.workers or len(os.sched_getaffinity(0))
    _tokenizer(settings, source, folder, workers, say)
    held = folder / "held-out"
    if not list(held.glob("shard-*.pairs.npy")):
        held.mkdir(exist_ok=True)
        # those of a corpus are few in many rows, so that little is said while they are read
        patience = settings.data.patience * (1 if settings.data.generate is not None else 30)
        make_shards(held, 1, partial(_held_out, source), folder, 1, lambda *_: None, patience)

    def show(done: int, pairs: int, tokens: int) -> None:
        say(f"pairs: {done} of {source.count} shards ({pairs:,} pairs, {tokens:,} tokens)")

    make_shards(folder / "training", source.count, source, folder, workers, show, settings.data.patience)
    return folder


def _tokenizer(settings: PretrainSettings, source: Source, folder: Path, workers: int, say: Say) -> None:
    """Trains the tokenizer on the first pairs, or takes a checkpoint's over."""
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
    """Pairs of the first shards, as many as are wanted or all that there are. A shard that cannot be made is left out.

    Ends when the shards that are there without a gap hold enough, so that the pairs do not depend on who was fast.
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
    """One shard's pairs, in a process of its own."""
    made: list[Texts] = []
    for pair in source(number, Counter()):
        made.append(pair)
        if len(made) % BATCH == 0:
            beat()
    return made


def open_data(settings: PretrainSettings, folder: Path) -> Prepared:
    """What `prepare_data` made."""
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
