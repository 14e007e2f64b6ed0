"""Trains the byte-level BPE tokenizer and writes it in Hugging Face's format.

Digits are single tokens, so that sizes are always spelled the same way. The end of a line is merged with its
punctuation and the next line's indentation, the most frequent sequences in code. Any text survives encoding and
decoding: the 256 bytes are the first tokens after the special ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.inference.chat import CHAT_TEMPLATE, END_OF_TEXT, SPECIAL_TOKENS, TURN_END

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDS = (
    r"(?:\r?\n)+[ \t]*"  # ends of lines with the next one's indentation
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"  # words, with one sign before them
    r"|\p{N}"  # single digits
    r"| ?[^\s\p{L}\p{N}]+(?:(?:\r?\n)+[ \t]*)?"  # signs, with an end of line after them
    r"|\s+"
)
"""The pre-tokenizer's pieces, in the syntax of the Rust library's regular expressions. Merges stay within a piece."""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Trains a tokenizer of at most `vocabulary` tokens; the same texts in the same order give the same tokenizer."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`. `context` is in tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "additional_special_tokens": list(SPECIAL_TOKENS),
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
