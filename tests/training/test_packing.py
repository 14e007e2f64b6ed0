"""Packing: every pair once per pass, uncut, and in the same order after a resume."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers")

from kernelwright.errors import ConfigError
from kernelwright.training.pretrain.packing import IGNORE, Packing, arrays, epoch, label_count, most_documents, updates
from kernelwright.training.pretrain.shards import Shards, write_shard


def made(lengths: list[tuple[int, int]], sizes: tuple[int, ...] = ()) -> Shards:
    """Returns shards in memory; the ids of pair i are i + 1, repeated."""
    table = np.array(lengths, np.int32).reshape(-1, 2)
    cuts = [0, *np.cumsum(sizes), len(table)] if sizes else [0, len(table)]
    tokens = [
        np.concatenate([np.full(sum(lengths[i]), i + 1, np.uint16) for i in range(a, b)] or [np.zeros(0, np.uint16)])
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    return Shards(tuple(tokens), table, np.array(cuts))


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 23)), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 5), st.integers(1, 200))
def test_a_pass_has_every_pair_once_and_rows_hold(
    lengths: list[tuple[int, int]], rows: int, seed: int, documents: int
) -> None:
    shards = made(lengths)
    packing = Packing(rows, 64, seed, documents)
    whole = list(epoch(shards, packing, 0, whole=False))
    flat = [list(chain.from_iterable(batch)) for batch in whole]
    assert sorted(chain.from_iterable(flat)) == list(range(len(lengths)))
    for batch in whole:
        assert len(batch) == rows and any(batch)
        assert all(sum(sum(lengths[i]) for i in row) <= 64 for row in batch)
        assert sum(map(len, batch)) <= documents
    assert whole[: len(list(epoch(shards, packing, 0)))] == list(epoch(shards, packing, 0))


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(0, 9))
def test_a_resumed_run_goes_on_where_it_was(lengths: list[tuple[int, int]], start: int) -> None:
    shards, packing = made(lengths), Packing(2, 64, 1, 64)
    assert list(islice(updates(shards, packing, 0), start, start + 4)) == list(
        islice(updates(shards, packing, start), 4)
    )


def test_passes_differ() -> None:
    shards, packing = made([(10, 10)] * 60), Packing(2, 64, 1, 64)
    first, second = (list(epoch(shards, packing, n)) for n in (0, 1))
    assert first != second and first == list(epoch(shards, packing, 0))


def test_rows_are_well_filled() -> None:
    rng = np.random.default_rng(0)
    shards = made(
        [(int(a), int(b)) for a, b in zip(rng.integers(80, 400, 900), rng.integers(100, 700, 900), strict=True)]
    )
    batches = list(epoch(shards, Packing(4, 4096, 0, most_documents(shards, 4, 4096)), 0))
    held = shards.lengths[list(chain.from_iterable(chain.from_iterable(batches)))].sum()
    assert held > 0.97 * len(batches) * 4 * 4096


def test_there_is_room_for_half_as_many_pairs_again_as_fill_an_update() -> None:
    assert most_documents(made([(100, 100)] * 30), 4, 1000) == 31
    assert most_documents(made([(1000, 1000)]), 4, 1000) == 4
    assert most_documents(made([]), 4, 1000) == 7


def test_arrays_of_rows() -> None:
    shards = made([(3, 2), (2, 4), (1, 1)], sizes=(1,))
    batch = arrays(shards, [[0, 2], [1]], 8, documents=4, longest=8)
    assert batch.tokens.tolist() == [[1, 1, 1, 1, 1, 3, 3, 0], [2, 2, 2, 2, 2, 2, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 0], [0, 1, 2, 3, 4, 5, 0, 0]]
    no = IGNORE
    assert batch.labels.tolist() == [[no, no, 1, 1, no, 3, no, no], [no, 2, 2, 2, 2, no, no, no]]
    assert batch.bounds[:6].tolist() == [0, 5, 7, 8, 14, 16] and set(batch.bounds[6:]) == {16}
    rows, length = batch.documents.shape
    flat = batch.documents.reshape(rows * length)
    assert [len(set(flat[a:b])) for a, b in zip(batch.bounds[:5], batch.bounds[1:6], strict=True)] == [1] * 5
    assert len(set(flat)) == 5
    assert label_count(shards, [[0, 2], [1]]) == 7 == (batch.labels != no).sum()
    longer = arrays(shards, [[2]], 20, documents=4, longest=8)
    assert np.diff(longer.bounds).max() <= 8 and longer.bounds[-1] == 20


def test_shards_on_disk(tmp_path: Path) -> None:
    for number, lengths in enumerate(([(2, 3), (50, 50)], [(4, 4)])):
        one = made(lengths)
        write_shard(tmp_path, number, one.tokens[0] + np.uint16(10 * number), one.lengths)
    shards = Shards.open(tmp_path, 60)
    assert shards.usable.tolist() == [0, 2]
    ids, prompt = shards.pair(2)
    assert (ids.tolist(), prompt) == ([11] * 8, 4)
    assert shards.pair(1)[0].tolist() == [2] * 100
    with pytest.raises(ConfigError, match="holds no pairs"):
        Shards.open(tmp_path / "none", 60)
