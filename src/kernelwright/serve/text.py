"""Tokens to text while they come: whole characters and names, and nothing that may be part of a stop text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from kernelwright.inference.names import Names, restored
from kernelwright.inference.tokenizer import ChatTokenizer


class TextStream:
    """The text of one answer, piece by piece. The pieces together are the answer's text, under the task's `names`."""

    def __init__(self, tokenizer: ChatTokenizer, stops: Sequence[str], names: Names) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops, self._names = tuple(stops), names
        self._held = max((len(stop) - 1 for stop in stops), default=0)
        self._read = 0
        self._text = ""
        self._sent = 0

    def piece(self, ids: Sequence[int], whole: str | None) -> str:
        """What is new and safe to show. `whole`: the answer's text once it is done."""
        if whole is not None:
            new = whole[self._sent :]
            self._sent = len(whole)
            return restored(new, self._names)
        for number in ids[self._read :]:
            self._text += self._decoder.decode(self._tokenizer.piece(number))
        self._read = len(ids)
        cuts = [at for at in map(self._text.find, self._stops) if at >= 0]
        end = max(self._sent, min([len(self._text) - self._held, *cuts]))
        while self._names and end > self._sent and (self._text[end - 1].isalnum() or self._text[end - 1] == "_"):
            end -= 1  # a name is replaced whole
        new = self._text[self._sent : end]
        self._sent = end
        return restored(new, self._names)
