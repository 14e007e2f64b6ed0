"""Preference rows as tokens: a prompt, a preferred and a rejected answer, and a mask of the policy's own tokens.

A row has a prompt, `chosen` and `rejected`: texts, or lists of messages as `curate` writes them. A list may be a whole
rollout, with messages of the user between the policy's; only the policy's own tokens are trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright.errors import ConfigError
from kernelwright.prompts.spans import token_mask
from kernelwright.training.fine_tune.samples import Encoder, load_tokenizer
from kernelwright.training.fine_tune.settings import DpoSettings, TextSettings
from kernelwright.training.fine_tune.texts import BadRow, Conversation, Messages, RowReport, conversation, named_rows


@dataclass(frozen=True)
class Said:
    """The tokens after the prompt, and a mask of the policy's own tokens."""

    ids: list[int]
    own: list[bool]


@dataclass(frozen=True)
class PreferencePair:
    """One row of preferences."""

    name: str
    prompt: list[int]
    chosen: Said
    rejected: Said
    key: int
    """Hash of the prompt; equal for pairs of one task."""


def read_pairs(settings: DpoSettings) -> tuple[list[PreferencePair], RowReport]:
    """Reads all pairs of a run, with a report of the bad rows. Raises `ConfigError` if no pair is left."""
    report = RowReport()
    tokenizer = load_tokenizer(settings.model.path, settings.model.trust_remote_code)
    encoder = Encoder(tokenizer, settings.data.length, settings.data.style, True, True)
    found: list[PreferencePair] = []
    for name, row in named_rows(settings.data, report):
        pair = encoded(row, name, encoder, settings.data)
        if isinstance(pair, BadRow):
            report.bad.append(pair)
        else:
            found.append(pair)
    if not found:
        raise ConfigError(f"no pairs to train on in {settings.data.path!r}: {report.why_none(settings.data.where)}")
    return found, report


def fingerprint(pairs: list[PreferencePair]) -> str:
    """Hashes the tokens of all pairs, to detect a change of data."""
    digest = hashlib.sha256()
    for pair in pairs:
        sides = [(side.ids, side.own) for side in (pair.chosen, pair.rejected)]
        digest.update(json.dumps([pair.prompt, sides]).encode())
    return digest.hexdigest()[:32]


def split_pairs(pairs: list[PreferencePair], held_out: int) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Splits into training and held-out pairs, keeping pairs of a prompt together. Raises `ConfigError` if no training
    pair is left."""
    if not held_out:
        return pairs, []
    border = sorted(pair.key for pair in pairs)[min(held_out, len(pairs)) - 1]
    out = [pair for pair in pairs if pair.key <= border]
    if len(out) == len(pairs):
        raise ConfigError(f"data.held_out = {held_out} leaves none of {len(pairs)} pairs to train on")
    return [pair for pair in pairs if pair.key > border], out


def encoded(row: Mapping[str, Any], name: str, encoder: Encoder, data: TextSettings) -> PreferencePair | BadRow:
    """Encodes a row, or returns it as a bad row with the reason."""
    sides: dict[str, Said] = {}
    prompt: list[int] = []
    for side in ("chosen", "rejected"):
        read = conversation(row, name, data.model_copy(update={"answer": side}))
        if isinstance(read, BadRow):
            return BadRow(name, read.reason, f"{side}: {read.detail}".removesuffix(": "))
        said = row[side]
        count = 1 if isinstance(said, str) else len(said)
        made = dialogue(encoder, read, len(read.messages) - count)
        if isinstance(made, BadRow):
            return BadRow(name, made.reason, f"{side}: {made.detail}".removesuffix(": "))
        prompt, sides[side] = made
        if side == "chosen" and data.without_cuda == "drop" and not _has_cuda(read.messages):
            return BadRow(name, "no-cuda", side)
        if len(prompt) + len(sides[side].ids) > encoder.length:
            return BadRow(name, "too-long", f"{side}: {len(prompt) + len(sides[side].ids)} tokens")
        if not any(sides[side].own):
            return BadRow(name, "all-masked", side)
    if sides["chosen"] == sides["rejected"]:
        return BadRow(name, "same-answers")
    key = hashlib.sha256(json.dumps(prompt).encode()).digest()
    return PreferencePair(name, prompt, sides["chosen"], sides["rejected"], int.from_bytes(key[:8], "big"))


def _has_cuda(messages: Messages) -> bool:
    answer = messages[-1]["content"]
    return bool(token_mask(answer, [(i, i + 1) for i in range(len(answer))]).any())


def dialogue(encoder: Encoder, row: Conversation, asked: int) -> tuple[list[int], Said] | BadRow:
    """Encodes the first `asked` messages as the prompt, and the messages after them."""
    bad = encoder.misspelt(row)
    if bad is not None:
        return bad
    own = [at for at in range(asked, len(row.messages)) if row.messages[at]["role"] == "assistant"]
    if any(not row.messages[at]["content"].strip() for at in own):
        return BadRow(row.name, "empty-answer")
    found = encoder.segments(row, own)
    if isinstance(found, BadRow):
        return found
    ids = [token for segment in found[1:] for token in segment.ids]
    return found[0].ids, Said(ids, [segment.own for segment in found[1:] for _ in segment.ids])
