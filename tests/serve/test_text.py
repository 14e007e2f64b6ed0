"""Text of tokens that arrive one by one: whole characters, no stop text, and in total exactly the answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training.sample_pairs import pair

pytest.importorskip("tokenizers")

from kernelwright.inference.repeating import CLASS, FORWARD, Asking
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.serve.text import TextStream
from kernelwright.training.pretrain.tokenizer import train_tokenizer

rng = random.Random(0)
TOKENIZER = ChatTokenizer(train_tokenizer([text for _ in range(30) for text in pair(rng)], 500))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=4), max_size=3), st.integers(1, 5))
def test_pieces_make_the_answer_and_never_show_a_stop(text: str, stops: list[str], stride: int) -> None:
    ids = TOKENIZER.encode(text)
    stream = TextStream(TOKENIZER, stops, Asking(""))
    shown = ""
    for count in range(stride, len(ids) + 1, stride):
        shown += stream.piece(ids[:count], None)
        cuts = [at for at in map(text.find, stops) if at >= 0]
        assert text.startswith(shown) and len(shown) <= min([len(text), *cuts])
    whole = text[: min([len(text), *(at for at in map(text.find, stops) if at >= 0)])]
    assert shown + stream.piece(ids, whole) == whole


SOURCE = """
class Model(nn.Module):
    def __init__(self, n):
        self.q_norm = nn.Linear(n, n)
    def forward(self, x):
        return self.q_norm(x)
"""


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["amber_arch", "self.", " ", "amber", "_", "x", "(", "\n", CLASS, FORWARD, CLASS[:9], FORWARD[:7]]
        ),
        max_size=30,
    ),
    st.integers(1, 5),
)
def test_pieces_of_an_answer_to_a_task_are_the_whole_answer(words: list[str], stride: int) -> None:
    asked = Asking("", {"amber_arch": "q_norm"}, SOURCE)
    text = "".join(words)
    ids = TOKENIZER.encode(text)
    stream = TextStream(TOKENIZER, [], asked)
    shown = "".join(stream.piece(ids[:count], None) for count in range(stride, len(ids) + 1, stride))
    assert shown + stream.piece(ids, text) == asked.answered(text)
