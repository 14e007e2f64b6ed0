"""Everything that a run needs before its first update: the tokenizer, tokenised shards, held-out pairs.

All of it is kept in a folder and made once; a stopped preparation goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path

from kernelwright.errors import ConfigError
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.training.settings import PretrainSettings
from kernelwright.training.shards import Shards, Texts, make_shards, tokenise, write_shard
from kernelwright.training.sources import Source, open_source
from kernelwright.training.tokenizer import save_tokenizer, train_tokenizer

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """What a run trains with. `left_out`: pairs that are longer than a row."""

    tokenizer: ChatTokenizer
    training: Shards
    held_out: Shards
    left_out: int
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
        write_shard(held, 0, *tokenise(source.held_out(), ChatTokenizer.load(folder)))

    def show(done: int, pairs: int, tokens: int) -> None:
        say(f"pairs: {done} of {source.count} shards ({pairs:,} pairs, {tokens:,} tokens)")

    make_shards(folder / "training", source.count, source, folder, workers, show)
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
        texts = _first_pairs(source, wanted.pairs, workers)
        say(f"tokenizer: training on {len(texts):,} pairs")
        taken = train_tokenizer((text for pair in texts for text in pair), wanted.vocabulary)
    save_tokenizer(taken, folder, settings.model.context)


def _first_pairs(source: Source, wanted: int, workers: int) -> list[Texts]:
    """Pairs of the first shards, as many as are wanted or all that there are."""
    texts: list[Texts] = []
    if workers == 1:
        shards = map(source, range(source.count))
        return list(islice(chain.from_iterable(shards), wanted))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for first in range(0, source.count, workers):
            for pairs in pool.map(source, range(first, min(first + workers, source.count))):
                texts += pairs
            if len(texts) >= wanted:
                break
    return texts[:wanted]


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
    return Prepared(ChatTokenizer.load(folder), training, held_out, left_out, describe)
