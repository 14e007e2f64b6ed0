"""Text of tokens that come one by one: whole characters, no stop text, and in the end exactly the answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training.sample_pairs import pair

pytest.importorskip("tokenizers")

from kernelwright.inference.names import restored
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.serve.text import TextStream
from kernelwright.training.tokenizer import train_tokenizer

rng = random.Random(0)
TOKENIZER = ChatTokenizer(train_tokenizer([text for _ in range(30) for text in pair(rng)], 500))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=4), max_size=3), st.integers(1, 5))
def test_pieces_make_the_answer_and_never_show_a_stop(text: str, stops: list[str], stride: int) -> None:
    ids = TOKENIZER.encode(text)
    stream = TextStream(TOKENIZER, stops, {})
    shown = ""
    for count in range(stride, len(ids) + 1, stride):
        shown += stream.piece(ids[:count], None)
        cuts = [at for at in map(text.find, stops) if at >= 0]
        assert text.startswith(shown) and len(shown) <= min([len(text), *cuts])
    whole = text[: min([len(text), *(at for at in map(text.find, stops) if at >= 0)])]
    assert shown + stream.piece(ids, whole) == whole


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["amber_arch", "self.", " ", "amber", "_", "x", "(", "\n"]), max_size=30),
    st.integers(1, 5),
)
def test_pieces_under_the_tasks_names_are_the_whole_under_them(words: list[str], stride: int) -> None:
    names = {"amber_arch": "q_norm"}
    text = "".join(words)
    ids = TOKENIZER.encode(text)
    stream = TextStream(TOKENIZER, [], names)
    shown = "".join(stream.piece(ids[:count], None) for count in range(stride, len(ids) + 1, stride))
    assert shown + stream.piece(ids, text) == restored(text, names)
