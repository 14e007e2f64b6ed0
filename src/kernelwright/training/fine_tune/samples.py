"""Encodes conversations as tokens with flags (target, CUDA, reasoning), and caches them in the cache folder.

The answer is tokenised separately, so that its tokens have offsets in its text, and so that training sees the same
token sequence as generation: the prompt's tokens, then the answer's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.config import cache_dir
from kernelwright.errors import ConfigError
from kernelwright.generation.hub import tokenizer_kind
from kernelwright.inference.chat import CHAT_TEMPLATE, task_prompt
from kernelwright.prompts.answers import fenced, reasoning
from kernelwright.prompts.spans import thought_mask, token_mask
from kernelwright.records import Task
from kernelwright.training.fine_tune.settings import SftSettings, check_there
from kernelwright.training.fine_tune.texts import BadRow, Conversation, RowReport, conversations

if TYPE_CHECKING:
    from numpy.typing import NDArray

TARGET, CUDA, THOUGHT = 1, 2, 4
"""Bits of a token's flags."""

VERSION = 4
"""The version of the cache; increase it when the same rows would get other tokens or flags."""

_CHUNK = 512


@dataclass(frozen=True)
class EncodedSample:
    """One tokenised conversation. `flags` has the bits of each token."""

    name: str
    ids: NDArray[np.int32]
    flags: NDArray[np.uint8]


@dataclass(frozen=True)
class EncodedSamples:
    """Samples in flat arrays: `ids[bounds[i]:bounds[i + 1]]`."""

    names: list[str]
    ids: NDArray[np.int32]
    flags: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    prompts: NDArray[np.uint64]
    """Hashes of the prompts; equal for samples of one task."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def fingerprint(self) -> str:
        """The hash of tokens and flags, to detect a change of data."""
        digest = hashlib.sha256()
        for part in (self.ids, self.flags, self.bounds):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:32]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.bounds)

    def __getitem__(self, index: int) -> EncodedSample:
        here = slice(int(self.bounds[index]), int(self.bounds[index + 1]))
        return EncodedSample(self.names[index], self.ids[here], self.flags[here])

    def chosen(self, indices: Sequence[int]) -> EncodedSamples:
        """Returns the samples with these indices, in that order."""
        picked = [self[i] for i in indices]
        return _joined(picked, [int(self.prompts[i]) for i in indices])


@dataclass(frozen=True)
class Segment:
    """A part of a conversation as tokens: one message of the policy, or the text before it."""

    ids: list[int]
    own: bool
    """True for a message of the policy, to train on."""
    text: str = ""
    offsets: tuple[tuple[int, int], ...] = ()
    """The tokens' offsets in a message of the policy."""


class Encoder:
    """Turns conversations into samples with one model's tokenizer and template."""

    def __init__(self, tokenizer: Any, length: int, style: str, device_functions: bool, keep_all: bool) -> None:
        self.tokenizer = tokenizer
        self.length = length
        self.plain = style == "plain" or (style == "auto" and tokenizer.chat_template == CHAT_TEMPLATE)
        self.device_functions = device_functions
        self.keep_all = keep_all
        specials = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
        self.specials = sorted(specials | set(tokenizer.all_special_tokens), key=len)

    def texts(self, row: Conversation) -> tuple[str, str]:
        """Returns the prompt's text, and the answer's text with its end token."""
        messages = row.messages
        if row.reference:
            messages = _asked_plainly(messages) if self.plain else _asked_in_words(messages)
        if self.tokenizer.chat_template is None:
            before = self._begin() + "\n\n".join(m["content"] for m in messages[:-1]) + "\n\n"
            return before, messages[-1]["content"] + (self.tokenizer.eos_token or "")
        render = self.tokenizer.apply_chat_template
        before = render(messages[:-1], tokenize=False, add_generation_prompt=True)
        whole = render(messages, tokenize=False)
        said = messages[-1]["content"]
        answer = whole[len(before) :]
        # Some templates drop or add text in the last turn, such as its reasoning.
        if not whole.startswith(before) or (reasoning(said) and not reasoning(answer)):
            answer = said + (self.tokenizer.eos_token or "")
        return before, _opened_once(before, answer)

    def encode(self, row: Conversation) -> EncodedSample | BadRow:
        """Encodes a conversation, or returns it as a bad row with the reason."""
        bad = self.misspelt(row)
        if bad is not None:
            return bad
        found = self.segments(row, row.own or (len(row.messages) - 1,))
        if isinstance(found, BadRow):
            return found
        ids = np.array([token for segment in found for token in segment.ids], dtype=np.int32)
        if len(ids) > self.length:
            return BadRow(row.name, "too-long", f"{len(ids)} tokens")
        flags = np.concatenate([self._flags(segment) for segment in found])
        if not (flags & TARGET).any() or len(ids) < 2:
            return BadRow(row.name, "all-masked")
        if not (flags & CUDA).any() and not self.keep_all:
            return BadRow(row.name, "no-cuda")
        return EncodedSample(row.name, ids, flags)

    def _flags(self, segment: Segment) -> NDArray[np.uint8]:
        if not segment.own:
            return np.zeros(len(segment.ids), dtype=np.uint8)
        offsets = list(segment.offsets)
        cuda = token_mask(segment.text, offsets, device_functions=self.device_functions)
        thought = thought_mask(segment.text, offsets)
        flags: NDArray[np.uint8] = (TARGET + CUDA * cuda + THOUGHT * thought).astype(np.uint8)
        return flags

    def segments(self, row: Conversation, own: Sequence[int]) -> list[Segment] | BadRow:
        """Tokenises a conversation up to the last of the policy's messages; `own` has their indices.

        Each of these messages is tokenised separately and ends with the end-of-turn token, as in generation.
        """
        from jinja2 import TemplateError

        found: list[Segment] = []
        text = ""
        for at in own:
            try:
                before, answer = self.texts(Conversation(row.name, row.messages[: at + 1], row.reference))
            except TemplateError as error:  # "roles must alternate", for one
                return BadRow(row.name, "template", str(error)[:200])
            if not before.startswith(text):
                return BadRow(row.name, "rewritten", f"at message {at}")
            found.append(Segment(self.ids(before[len(text) :]), False))
            ids, offsets = self.answer(answer)
            found.append(Segment(ids, True, answer, tuple(offsets)))
            text = before + self._until_end(answer)
        return found

    def misspelt(self, row: Conversation) -> BadRow | None:
        """Returns a bad row if the row's text contains a special token of the tokenizer, else None."""
        for message in row.messages:
            for special in self.specials:
                if special in message["content"]:
                    return BadRow(row.name, "special-token", special)
        return None

    def ids(self, text: str) -> list[int]:
        """Tokenises a text, including special tokens in it."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _begin(self) -> str:
        """Returns the BOS token if the tokenizer adds one; chat templates contain it themselves."""
        bos = self.tokenizer.bos_token
        return bos if bos and self.tokenizer("x")["input_ids"][0] == self.tokenizer.bos_token_id else ""

    def _until_end(self, text: str) -> str:
        """Returns an answer's text up to and including its end token."""
        end = self.tokenizer.eos_token
        head, found, _ = text.rpartition(end) if end else (text, "", "")
        return head + found if found else text

    def answer(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Tokenises an answer with offsets, up to its end token, which is added if missing."""
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = list(encoded["input_ids"]), [(int(a), int(b)) for a, b in encoded["offset_mapping"]]
        end = self.tokenizer.eos_token_id
        if end is None:
            return ids, offsets
        if end not in ids:
            return [*ids, end], [*offsets, (len(text), len(text))]
        last = len(ids) - ids[::-1].index(end)
        return ids[:last], offsets[:last]


def _opened_once(before: str, answer: str) -> str:
    """Removes the answer's opening reasoning tag if the prompt already ends with one."""
    if not re.search(r"<think(?:ing)?>\s*\Z", before):
        return answer
    rest = re.sub(r"\A\s*<think(?:ing)?>", "", answer)
    return rest.lstrip("\n") if rest != answer and before.endswith("\n") else rest


def _asked_plainly(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{**m, "content": task_prompt(m["content"]) if m["role"] == "user" else m["content"]} for m in messages]


def _asked_in_words(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    from kernelwright.prompts.messages import initial_messages

    asked = initial_messages(Task(task_id="task", source=messages[0]["content"]))
    answer = fenced(messages[-1]["content"])
    return [*({"role": m.role, "content": m.content} for m in asked), {"role": "assistant", "content": answer}]


def load_tokenizer(path: str, trust_remote_code: bool = False) -> Any:
    """Loads a model's fast tokenizer and sets a padding token. Raises `ConfigError`."""
    check_there(path)
    try:
        tokenizer = tokenizer_kind(path).from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"there is no tokenizer in {path!r}: {str(error).splitlines()[0][:200]}",
            hint="model.path must be a folder or a Hub id in Hugging Face's format",
        ) from error
    if not tokenizer.is_fast:
        raise ConfigError(
            f"the tokenizer of {path!r} gives no places of its tokens", hint="use one with tokenizer.json"
        )
    if tokenizer.pad_token is None and tokenizer.eos_token is None:
        raise ConfigError(
            f"the tokenizer of {path!r} has no token that ends a text, and none to pad with",
            hint="set eos_token in its tokenizer_config.json",
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def prepare(settings: SftSettings) -> tuple[EncodedSamples, RowReport]:
    """Returns all samples of a run, tokenised or from the cache, with a report of bad rows. Raises `ConfigError`."""
    report = RowReport()
    rows = list(conversations(settings.data, report))
    kept = cache_dir() / "samples" / _key(settings, rows)
    if not kept.is_dir():
        with _first(kept):
            if not kept.is_dir():
                _write(kept, rows, list(_encoded(settings, rows)))
    samples, bad = _read(kept)
    report.bad += bad
    if not len(samples):
        raise ConfigError(f"nothing to train on in {settings.data.path!r}: {report.why_none(settings.data.where)}")
    return samples, report


@contextlib.contextmanager
def _first(kept: Path) -> Iterator[None]:
    """Locks a cache entry: one of several concurrent runs encodes the rows, the others wait."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with open(kept.with_suffix(".lock"), "w") as lock:
        with contextlib.suppress(OSError):  # without file locks, each run encodes the rows
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def split(samples: EncodedSamples, held_out: int) -> tuple[EncodedSamples, EncodedSamples | None]:
    """Splits into training and held-out samples. Holds out the prompts with the smallest hashes, with all their
    samples.

    Raises `ConfigError` if no training sample is left.
    """
    if not held_out:
        return samples, None
    order = np.argsort(samples.prompts, kind="stable")
    border = samples.prompts[order[min(held_out, len(samples)) - 1]]
    out = samples.prompts <= border
    if out.all():
        raise ConfigError(f"data.held_out = {held_out} leaves none of {len(samples)} rows to train on")
    return samples.chosen(np.flatnonzero(~out).tolist()), samples.chosen(np.flatnonzero(out).tolist())


def encoder_of(settings: SftSettings) -> Encoder:
    """Makes the encoder for a run's settings. Raises `ConfigError`."""
    data = settings.data
    tokenizer = load_tokenizer(settings.model.path, settings.model.trust_remote_code)
    return Encoder(tokenizer, data.length, data.style, settings.loss.device_functions, data.without_cuda == "keep")


_worker: dict[str, Encoder] = {}


def _begin(settings: SftSettings) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _worker["encoder"] = encoder_of(settings)


def _chunk(rows: list[Conversation]) -> list[EncodedSample | BadRow]:
    return [_worker["encoder"].encode(row) for row in rows]


def _encoded(settings: SftSettings, rows: Sequence[Conversation]) -> Iterator[EncodedSample | BadRow]:
    """Encodes rows in order; uses several processes for many rows."""
    workers = settings.data.workers or len(os.sched_getaffinity(0))
    if workers < 2 or len(rows) < 4 * _CHUNK:
        encoder = encoder_of(settings)
        yield from (encoder.encode(row) for row in rows)
        return
    iterator = iter(rows)
    chunks = iter(lambda: list(islice(iterator, _CHUNK)), [])
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (settings,)) as pool:
        for part in pool.map(_chunk, chunks):
            yield from part


def _key(settings: SftSettings, rows: Sequence[Conversation]) -> str:
    digest = hashlib.sha256()
    data = settings.data
    options = [VERSION, data.length, data.style, data.without_cuda, settings.loss.device_functions]
    digest.update(json.dumps([*options, _tokenizer_key(settings.model.path)]).encode())
    for row in rows:
        digest.update(json.dumps([row.name, row.messages, row.reference, row.own]).encode())
    return digest.hexdigest()[:32]


@cache
def _tokenizer_key(path: str) -> str:
    """Returns a hash of the tokenizer's files for a folder, or the id of a Hub model."""
    folder = Path(path)
    if not folder.is_dir():
        return path
    digest = hashlib.sha256()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (folder / name).is_file():
            digest.update(name.encode() + (folder / name).read_bytes())
    return digest.hexdigest()


def _joined(found: Sequence[EncodedSample], prompts: Sequence[int]) -> EncodedSamples:
    lengths = [len(s.ids) for s in found]
    return EncodedSamples(
        [s.name for s in found],
        np.concatenate([s.ids for s in found]) if found else np.zeros(0, np.int32),
        np.concatenate([s.flags for s in found]) if found else np.zeros(0, np.uint8),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
        np.array(prompts, dtype=np.uint64),
    )


def _write(kept: Path, rows: Sequence[Conversation], found: Sequence[EncodedSample | BadRow]) -> None:
    """Writes a temporary folder and renames it, so that the cache entry is complete or absent."""
    folder = Path(tempfile.mkdtemp(prefix=kept.name, dir=kept.parent))
    good = [(s, _prompt_hash(row)) for row, s in zip(rows, found, strict=True) if isinstance(s, EncodedSample)]
    samples = _joined([s for s, _ in good], [p for _, p in good])
    bad = [[b.name, b.reason, b.detail] for b in found if isinstance(b, BadRow)]
    np.savez(
        folder / "samples.npz",
        ids=samples.ids,
        flags=samples.flags,
        bounds=samples.bounds,
        prompts=samples.prompts,
    )
    (folder / "names.json").write_text(json.dumps({"names": samples.names, "bad": bad}), encoding="utf-8")
    try:
        folder.rename(kept)
    except OSError:  # another process has written the same entry
        shutil.rmtree(folder)


def _read(folder: Path) -> tuple[EncodedSamples, list[BadRow]]:
    texts = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    with np.load(folder / "samples.npz") as arrays:
        samples = EncodedSamples(texts["names"], arrays["ids"], arrays["flags"], arrays["bounds"], arrays["prompts"])
    return samples, [BadRow(*row) for row in texts["bad"]]


def _prompt_hash(row: Conversation) -> int:
    digest = hashlib.sha256(json.dumps(row.messages[:-1]).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Packs samples into rows of at most `room` tokens (best fit decreasing); returns sample indices by row.

    No sample is cut; a sample longer than `room` gets its own row.
    """
    rows: list[list[int]] = []
    free: dict[int, list[int]] = {}  # tokens left -> rows
    for sample in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = int(lengths[sample])
        left = min((f for f in free if f >= size), default=None)
        if left is None:
            rows.append([sample])
            row, rest = len(rows) - 1, room - size
        else:
            row = free[left].pop()
            if not free[left]:
                del free[left]
            rows[row].append(sample)
            rest = left - size
        if rest > 0:
            free.setdefault(rest, []).append(row)
    return rows
