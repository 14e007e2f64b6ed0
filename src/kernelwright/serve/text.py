"""Streams tokens as text: whole characters only, and no text that later tokens may change or cut off."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from kernelwright.inference.repeating import Asking
from kernelwright.inference.tokenizer import ChatTokenizer


class TextStream:
    """The text of one answer, piece by piece. The joined pieces equal `asked.answered` of the whole text."""

    def __init__(self, tokenizer: ChatTokenizer, stops: Sequence[str], asked: Asking) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops, self._asked = tuple(stops), asked
        self._held = max((len(stop) - 1 for stop in stops), default=0)
        self._read = 0
        self._text = ""
        self._end = 0
        self._sent = 0

    def piece(self, ids: Sequence[int], whole: str | None) -> str:
        """Returns the new text that is final. `whole` is the answer's text once it is done, else None."""
        if whole is not None:
            return self._new(whole)
        for number in ids[self._read :]:
            self._text += self._decoder.decode(self._tokenizer.piece(number))
        self._read = len(ids)
        cuts = [at for at in map(self._text.find, self._stops) if at >= 0]
        end = min([max(0, len(self._text) - self._held), *cuts])
        end = self._asked.ready(self._text[:end])
        if end <= self._end:
            return ""
        self._end = end
        return self._new(self._text[:end])

    def _new(self, drawn: str) -> str:
        """Returns the part of the answer that was not sent yet."""
        text = self._asked.answered(drawn)
        new = text[self._sent :]
        self._sent = len(text)
        return new
