"""Training the byte-level BPE tokenizer, and writing it as Hugging Face libraries read it.

Digits stand alone, so that sizes are spelled the same everywhere; the end of a line goes with its punctuation and the
next line's indentation, which is most of what code repeats. Any text survives encoding and decoding: the first tokens
after the special ones are the 256 bytes.
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
"""What is never merged across, in the syntax of the Rust library's regular expressions."""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of at most `vocabulary` tokens; the same texts in the same order give the same one."""
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
