"""The tokenizer: any text survives, digits stand alone, the same texts give the same one, transformers agrees."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training.sample_pairs import pair

pytest.importorskip("tokenizers")

from kernelwright.errors import ConfigError
from kernelwright.inference.chat import SPECIAL_TOKENS, source_of, task_prompt
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.prompts import initial_messages
from kernelwright.records import Message, Task
from kernelwright.training.pretrain.shards import tokenise
from kernelwright.training.pretrain.tokenizer import save_tokenizer, train_tokenizer


def texts(count: int = 60) -> list[str]:
    rng = random.Random(0)
    return [text for _ in range(count) for text in pair(rng)]


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(train_tokenizer(texts(), 700))


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=80) | st.binary(max_size=80).map(lambda b: b.decode("latin-1")))
def test_any_text_survives(tokenizer: ChatTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.piece(i) for i in ids) == text.encode()
    assert not set(ids) & set(tokenizer.special)


def test_special_tokens_are_letters_in_text(tokenizer: ChatTokenizer) -> None:
    for token in SPECIAL_TOKENS:
        ids = tokenizer.encode(f"x = '{token}'")
        assert tokenizer.decode(ids) == f"x = '{token}'" and not set(ids) & set(tokenizer.special)
        assert tokenizer.encode_raw(f"a{token}b").count(tokenizer.inner.token_to_id(token)) == 1


def test_digits_stand_alone(tokenizer: ChatTokenizer) -> None:
    for number in range(tokenizer.size):
        piece = tokenizer.piece(number)
        assert sum(48 <= b <= 57 for b in piece) <= 1 and not (len(piece) > 1 and piece[:1].isdigit())
    assert len(tokenizer.encode("1024")) == 4


def test_code_is_shorter_than_its_letters(tokenizer: ChatTokenizer) -> None:
    text = texts(1)[1]
    assert len(tokenizer.encode(text)) < len(text) / 2.5


def test_same_texts_same_tokenizer() -> None:
    assert train_tokenizer(texts(), 500).to_str() == train_tokenizer(texts(), 500).to_str()


def test_transformers_reads_it_the_same_way(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_tokenizer(tokenizer.inner, tmp_path, 4096)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.eos_token == "<|im_end|>" and theirs.pad_token == "<|endoftext|>" and theirs.pad_token_id == 0
    for source, answer in [pair(random.Random(i)) for i in range(5)]:
        assert theirs(source, add_special_tokens=False).input_ids == tokenizer.encode(source)
        turns = [{"role": "user", "content": task_prompt(source)}, {"role": "assistant", "content": answer}]
        made = theirs.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
        ids, lengths = tokenise([(source, answer)], tokenizer)
        count = len(ids)
        assert made["input_ids"][:count] == ids.tolist()  # the template ends the last turn's line, too
        assert made["assistant_masks"][:count] == [0] * int(lengths[0][0]) + [1] * int(lengths[0][1])
        asked = theirs.apply_chat_template(turns[:1], add_generation_prompt=True, return_dict=True)["input_ids"]
        assert asked == tokenizer.prompt([Message(role="user", content=task_prompt(source))])
        assert asked == ids[: lengths[0][0]].tolist()


def test_task_is_found_in_a_conversation() -> None:
    source = pair(random.Random(3))[0]
    messages = initial_messages(Task(task_id="t", source=source))
    assert source_of(messages) == task_prompt(source)
    later = (*messages, Message(role="assistant", content="no"), Message(role="user", content="Verdict: wrong."))
    assert source_of(later) == task_prompt(source)
    assert source_of([Message(role="user", content=f"  {source}\n")]) == task_prompt(source)
    assert source_of([]) == ""


def test_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        ChatTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="is no tokenizer"):
        ChatTokenizer.load(tmp_path)
    with pytest.raises(ConfigError, match="not byte-level"):
        ChatTokenizer(Tokenizer(models.BPE()))
