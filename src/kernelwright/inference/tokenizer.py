"""Encodes text to token ids and decodes them with a checkpoint's `tokenizer.json`; needs no transformers.

Message content is plain text: a task that spells `<|im_end|>` gets its characters, not the special token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError
from kernelwright.inference.chat import TURN, TURN_END
from kernelwright.records import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class ChatTokenizer:
    """A byte-level tokenizer with ChatML's turns. Raises `ConfigError` for a tokenizer of another kind."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.inner = tokenizer
        if type(tokenizer.decoder).__name__ != "ByteLevel":
            raise ConfigError(
                "the tokenizer is not byte-level",
                hint="use --policy hf:FOLDER, in training rollout.backend=transformers",
            )
        self.special = {number: t.content for number, t in tokenizer.get_added_tokens_decoder().items() if t.special}
        self.inner.encode_special_tokens = True  # special tokens are added by id, never read from text
        self.turn = self._special(TURN)
        self.turn_end = self._special(TURN_END)
        self._line = self.encode("\n")
        self._heads: dict[str, list[int]] = {}

    @classmethod
    def load(cls, folder: Path) -> ChatTokenizer:
        """Loads the tokenizer of a checkpoint's folder. Raises `ConfigError` where there is none."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigError("this needs the library tokenizers", hint="pip install tokenizers") from error
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"there is no tokenizer.json in {str(folder)!r}", hint="name a checkpoint's folder")
        try:
            return cls(Tokenizer.from_file(str(path)))
        except ConfigError:
            raise
        except Exception as error:  # the library raises plain Exception for an unreadable file
            raise ConfigError(f"{str(path)!r} is no tokenizer: {error}") from error

    def _special(self, token: str) -> int:
        number = self.inner.token_to_id(token)
        if number is None:
            raise ConfigError(
                f"the tokenizer has no token {token}, so its chat format is not ChatML",
                hint="--policy hf:FOLDER and rollout.backend=transformers take the checkpoint's own chat template",
            )
        return int(number)

    @property
    def size(self) -> int:
        """The size of the vocabulary, special tokens included."""
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Returns the ids of plain text."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of several plain texts."""
        return [e.ids for e in self.inner.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_raw(self, text: str) -> list[int]:
        """Returns the ids of text in which special tokens are spelled out."""
        known = {content: number for number, content in self.special.items()}
        parts = re.split("(" + "|".join(re.escape(content) for content in known) + ")", text)
        return [i for part in parts for i in ([known[part]] if part in known else self.encode(part))]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids without special tokens; invalid UTF-8 becomes replacement characters."""
        return b"".join(self.piece(i) for i in ids).decode("utf-8", "replace")

    def piece(self, number: int) -> bytes:
        """Returns the bytes of one id; none for a special token."""
        if number in self.special:
            return b""
        token = self.inner.id_to_token(number)
        if token is None:
            return b""
        try:
            return bytes(_BYTES[c] for c in token)
        except KeyError:
            return token.encode()

    def head(self, role: str) -> list[int]:
        """Returns the ids that begin a role's turn."""
        if role not in self._heads:
            self._heads[role] = [self.turn, *self.encode(f"{role}\n")]
        return self._heads[role]

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Returns the ids of a conversation with the head of the assistant's turn."""
        ids: list[int] = []
        for message in messages:
            ids += self.wrap(message.role, self.encode(message.content))
        return ids + self.head("assistant")

    def wrap(self, role: str, content: list[int]) -> list[int]:
        """Returns the ids of one whole turn: head, content, end token and newline."""
        return [*self.head(role), *content, self.turn_end, *self._line]


def _byte_letters() -> dict[str, int]:
    """Returns GPT-2's byte table inverted: the character that stands for a byte -> the byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = {chr(b): b for b in printable}
    return letters | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_letters()
