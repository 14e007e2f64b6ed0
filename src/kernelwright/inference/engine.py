"""Batches requests on one decoder, one row each; waiting requests replace finished rows.

On a GPU a step is a CUDA graph, replayed several times between reads of the drawn tokens. On the CPU the batch shrinks
as rows finish. One thread drives an engine; any thread may add and cancel requests.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.errors import ConfigError
from kernelwright.inference.compiled import CompiledStep
from kernelwright.inference.decoder import Decoder
from kernelwright.inference.sampling import Sampling, draw
from kernelwright.inference.tokenizer import ChatTokenizer

GRAPH_ROWS = (1, 8, 32, 64, 128, 256)
BUCKET = 512
"""Granularity, in tokens, of the cache length that a CUDA graph attends to."""


@dataclass(eq=False)
class Running:
    """One request in progress. `finish_reason` is empty until it ends with `stop`, `length` or `cancelled`."""

    prompt: tuple[int, ...]
    sampling: Sampling
    ids: list[int] = field(default_factory=list)
    """The drawn tokens, the end token included."""
    log_probs: list[float] = field(default_factory=list)
    finish_reason: str = ""
    text: str = ""
    """The text of the drawn tokens, up to a stop text; set when the answer ends, or with each token given `stop`."""
    cancelled: bool = False


@dataclass
class _Rows:
    """The tensors that a step reads and writes, one row per request, on the device."""

    tokens: Tensor
    positions: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    uniforms: Tensor
    log_probs: Tensor


def check_length(prompt: Sequence[int], context: int) -> None:
    """Raises `ConfigError` for a prompt that is empty or leaves no room for an answer."""
    if not prompt or len(prompt) >= context:
        raise ConfigError(
            f"the prompt has {len(prompt)} tokens; the model's context is {context}", hint="shorten the task"
        )


def finish(
    asked: Sequence[Running],
    step: Callable[[], None],
    on_done: Callable[[int], None] | None,
    watch: Callable[[Sequence[Running]], None] | None = None,
) -> None:
    """Takes steps until all requests have ended; cancels them where a step or a callback raises.

    `on_done` gets the number of ended requests whenever it grows; `watch` gets all requests after each step.
    """
    done = 0
    try:
        while any(not r.finish_reason for r in asked):
            step()
            now = sum(bool(r.finish_reason) for r in asked)
            if on_done is not None and now > done:
                on_done(now)
            done = now
            if watch is not None:
                watch(asked)
    except BaseException:
        for running in asked:
            running.cancelled = True
        raise


class Engine:
    """Answers requests with a checkpoint: a generation back-end (`kernelwright.generation`). Raises `ConfigError`.

    `rows` is the batch size. `threads` holds for the CPU, all cores by default. With `compiled`, steps on the CPU run
    our own compiled code (`compiled.py`) where it supports the checkpoint. With `tempered`, log-probabilities are after
    the temperature.
    """

    name = "engine"

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "auto",
        rows: int | None = None,
        dtype: str = "auto",
        threads: int | None = None,
        compiled: bool = True,
        tempered: bool = False,
    ) -> None:
        self.tempered = tempered
        self.device = _device(device)
        gpu = self.device.type == "cuda"
        self._threads = threads or len(os.sched_getaffinity(0))
        if not gpu:
            torch.set_num_threads(self._threads)
        self.decoder = Decoder.load(folder, self.device, _dtype(dtype, gpu))
        self._step = _compiled(self.decoder, self._threads) if compiled and not gpu else None
        self.config = self.decoder.config
        self.tokenizer = ChatTokenizer.load(folder)
        if self.tokenizer.size > self.config.vocabulary:
            raise ConfigError(f"the tokenizer in {str(folder)!r} has more tokens than the model")
        self.ends = frozenset((*self.config.ends, self.tokenizer.turn_end))
        self.rows = min(rows or (128 if gpu else 8), GRAPH_ROWS[-1])
        self.stride = 8 if gpu else 1
        self._prefill_tokens = 32_768 if gpu else 4_096
        self._cache = self.decoder.cache(self.rows, self.config.context)
        self._state = self._fresh_rows()
        self._graphs: dict[tuple[int, int, bool], torch.cuda.CUDAGraph] = {}
        self._active: list[Running] = []
        self._lengths: list[int] = []
        self._waiting: deque[Running] = deque()
        self._lock = threading.Lock()

    def _fresh_rows(self) -> _Rows:
        n, on = self.rows, self.device
        return _Rows(
            torch.zeros(n, dtype=torch.long, device=on),
            torch.zeros(n, dtype=torch.long, device=on),
            torch.zeros(n, device=on),
            torch.ones(n, device=on),
            torch.full((n,), self.config.vocabulary, device=on),
            torch.zeros(n, self.config.context, device=on),
            torch.zeros(n, device=on),
        )

    # -- Public methods

    def add(self, prompt: Sequence[int], sampling: Sampling) -> Running:
        """Queues a request. Raises `ConfigError` where the prompt leaves no room for an answer."""
        check_length(prompt, self.config.context)
        running = Running(tuple(prompt), sampling.checked())
        with self._lock:
            self._waiting.append(running)
        return running

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        on_done: Callable[[int], None] | None = None,
        watch: Callable[[Sequence[Running]], None] | None = None,
    ) -> list[Running]:
        """Answers all prompts, in their order. `on_done` and `watch`: see `finish`."""
        for prompt in prompts:  # all before the first is queued: a prompt too long must leave none in the queue
            check_length(prompt, self.config.context)
        asked = [self.add(p, s) for p, s in zip(prompts, samplings, strict=True)]
        try:
            finish(asked, self.step, on_done, watch)
        except BaseException:
            self._sweep()
            raise
        return asked

    @property
    def busy(self) -> bool:
        """Tells whether a step would do anything."""
        return bool(self._active or self._waiting)

    @property
    def context(self) -> int:
        """The bound on tokens of a prompt with its answer."""
        return self.config.context

    @property
    def bare_task(self) -> bool:
        """Tells whether the prompt is a task's source alone."""
        return self.config.bare_task

    @property
    def schedules(self) -> tuple[str, ...]:
        """The schedules for an answer's first line, in the order of tries."""
        return self.config.schedules

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copies weights into the existing tensors, which its CUDA graphs read. Raises `ConfigError`."""
        old = self.decoder
        new = Decoder(old.config, dict(weights), old.device, old.dtype)
        pairs = [(old.embedding, new.embedding), (old.norm, new.norm), (old.head, new.head)]
        for before, after in zip(old.layers, new.layers, strict=True):
            pairs += [(a, getattr(after, name)) for name, a in vars(before).items() if a is not None]
        for target, source in pairs:
            target.copy_(source)
        if self._step is not None:  # it packs bfloat16 weights when it is made
            self._step = _compiled(old, self._threads)

    def rest(self) -> None:
        """Frees nothing: cache and graphs are small beside the model, and slow to make."""

    @torch.inference_mode()
    def step(self) -> None:
        """Admits waiting requests while rows are free, and draws the next `stride` tokens of every row."""
        self._sweep()
        self._admit()
        if self._active:
            self._decode()

    # -- Parts of a step

    def _sweep(self) -> None:
        """Drops cancelled requests."""
        with self._lock:
            gone = [r for r in self._waiting if r.cancelled]
            for running in gone:
                self._waiting.remove(running)
        for running in [*gone, *(r for r in self._active if r.cancelled)]:
            running.finish_reason = running.finish_reason or "cancelled"
        self._compact()

    def _admit(self) -> None:
        """Gives free rows to waiting requests. Equal prompts are computed once."""
        while len(self._active) < self.rows:
            taken: list[Running] = []
            distinct: dict[tuple[int, ...], int] = {}
            longest = 0
            with self._lock:
                while self._waiting and len(self._active) + len(taken) < self.rows:
                    prompt = self._waiting[0].prompt
                    longest = max(longest, len(prompt))
                    if taken and prompt not in distinct and longest * (len(distinct) + 1) > self._prefill_tokens:
                        break
                    distinct.setdefault(prompt, len(distinct))
                    taken.append(self._waiting.popleft())
            if not taken:
                return
            self._prefill(taken, distinct)

    def _prefill(self, taken: list[Running], distinct: dict[tuple[int, ...], int]) -> None:
        longest = max(map(len, distinct))
        tokens = torch.zeros(len(distinct), longest, dtype=torch.long)
        for prompt, number in distinct.items():
            tokens[number, : len(prompt)] = torch.tensor(prompt)
        lengths = torch.tensor([len(p) for p in distinct])
        logits, keys, values = self.decoder.prefill(tokens.to(self.device), lengths.to(self.device))
        first = len(self._active)
        which = [distinct[r.prompt] for r in taken]
        for at, number in enumerate(which, first):
            self._cache.keys[:, at, :, :longest] = keys[:, number]
            self._cache.values[:, at, :, :longest] = values[:, number]
        self._active += taken
        self._lengths += [len(r.prompt) for r in taken]
        self._write_rows(first, taken)
        rows = slice(first, first + len(taken))
        ids, log_probs = self._draw(logits[torch.tensor(which, device=self.device)], rows, self._filtered())
        self._state.tokens[rows] = ids
        self._collect([ids.tolist()], [log_probs.tolist()], first)

    def _write_rows(self, first: int, taken: list[Running]) -> None:
        """Writes the settings of new rows. A row's uniform numbers are stored at the positions of its tokens."""
        rows = slice(first, first + len(taken))
        s, vocabulary = self._state, self.config.vocabulary
        uniforms = torch.zeros(len(taken), self.config.context)
        for i, running in enumerate(taken):
            start = len(running.prompt)
            uniforms[i, start:] = torch.from_numpy(running.sampling.uniforms(self.config.context - start))
        s.uniforms[rows] = uniforms.to(self.device)
        s.positions[rows] = torch.tensor([len(r.prompt) for r in taken], device=self.device)
        s.temperature[rows] = torch.tensor([float(r.sampling.temperature) for r in taken], device=self.device)
        s.top_p[rows] = torch.tensor([float(r.sampling.top_p) for r in taken], device=self.device)
        limits = [min(r.sampling.top_k, vocabulary) or vocabulary for r in taken]
        s.top_k[rows] = torch.tensor(limits, device=self.device)

    def _filtered(self) -> bool:
        return any(r.sampling.top_p < 1 or r.sampling.top_k > 0 for r in self._active)

    def _draw(self, logits: Tensor, rows: slice, filtered: bool) -> tuple[Tensor, Tensor]:
        s = self._state
        uniform = s.uniforms[rows].gather(1, s.positions[rows, None])[:, 0]
        return draw(logits, uniform, s.temperature[rows], s.top_p[rows], s.top_k[rows], filtered, self.tempered)

    def _advance(self, rows: int, length: int, filtered: bool) -> None:
        """Draws one token for the first rows, in place, so that a CUDA graph can replay it."""
        s = self._state
        if self._step is not None:
            logits = self._step(s.tokens[:rows], s.positions[:rows], self._cache)
        else:
            logits = self.decoder.step(s.tokens[:rows], s.positions[:rows], self._cache, length)
        s.positions[:rows] = (s.positions[:rows] + 1).clamp_(max=self.config.context - 1)
        ids, log_probs = self._draw(logits, slice(0, rows), filtered)
        s.tokens[:rows] = ids
        s.log_probs[:rows] = log_probs

    def _decode(self) -> None:
        """Draws the next `stride` tokens of every row."""
        rows, ids, log_probs = len(self._active), [], []
        filtered = self._filtered()
        for number in range(self.stride):
            length = min(max(self._lengths) + number + 1, self.config.context)
            if self.device.type == "cuda":
                self._replay(rows, length, filtered)
            else:
                self._advance(rows, length, filtered)
            ids.append(self._state.tokens[:rows].clone())
            log_probs.append(self._state.log_probs[:rows].clone())
        self._lengths = [min(n + self.stride, self.config.context) for n in self._lengths]
        self._collect(torch.stack(ids).tolist(), torch.stack(log_probs).tolist(), 0)

    def _replay(self, rows: int, length: int, filtered: bool) -> None:
        """Draws one token with a graph for at least `rows` rows and `length` tokens of cache; captures it once."""
        padded = min(next(n for n in GRAPH_ROWS if n >= rows), self.rows)
        looked = min(-(-length // BUCKET) * BUCKET, self.config.context)
        key = (padded, looked, filtered)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(*key)
        graph.replay()

    def _capture(self, rows: int, length: int, filtered: bool) -> torch.cuda.CUDAGraph:
        """Captures a graph of one step. The warm-up runs overwrite rows, which are restored after them."""
        s = self._state
        kept = (s.tokens.clone(), s.positions.clone(), s.log_probs.clone())
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                s.positions.copy_(kept[1])
                self._advance(rows, length, filtered)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        s.positions.copy_(kept[1])
        with torch.cuda.graph(graph):
            self._advance(rows, length, filtered)
        for part, value in zip((s.tokens, s.positions, s.log_probs), kept, strict=True):
            part.copy_(value)
        return graph

    # -- Drawn tokens

    def _collect(self, ids: list[list[int]], log_probs: list[list[float]], first: int) -> None:
        """Appends drawn tokens to the rows from `first` on, and removes finished rows."""
        for step_ids, step_logs in zip(ids, log_probs, strict=True):
            for row, (token, log_prob) in enumerate(zip(step_ids, step_logs, strict=True), first):
                running = self._active[row]
                if not running.finish_reason:
                    self._append(running, token, log_prob)
        self._compact()

    def _append(self, running: Running, token: int, log_prob: float) -> None:
        running.log_probs.append(log_prob)
        running.ids.append(token)
        limit = min(running.sampling.max_tokens, self.config.context - len(running.prompt))
        reason = "stop" if token in self.ends else "length" if len(running.ids) >= limit else ""
        stops = running.sampling.stop
        if reason or stops:
            text = self.tokenizer.decode([i for i in running.ids if i not in self.ends])
            cuts = [at for at in map(text.find, stops) if at >= 0]
            running.text, reason = (text[: min(cuts)], "stop") if cuts else (text, reason)
        running.finish_reason = reason  # last: other threads read it as the sign of completion

    def _compact(self) -> None:
        """Moves the last rows into finished ones, so that the active rows come first."""
        for row in reversed(range(len(self._active))):
            if not self._active[row].finish_reason:
                continue
            last = len(self._active) - 1
            if row < last:
                self._cache.move(last, row, self._lengths[last])
                for part in vars(self._state).values():
                    part[row] = part[last]
                self._active[row], self._lengths[row] = self._active[last], self._lengths[last]
            self._active.pop()
            self._lengths.pop()


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"there is no GPU for the device {name!r}", hint="use cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no device {name!r}", hint="use auto, cpu or cuda") from error


def _compiled(decoder: Decoder, threads: int) -> CompiledStep | None:
    """Returns the compiled step; None where it does not support this decoder, or cannot be built."""
    try:
        return CompiledStep(decoder, threads)
    except ConfigError:
        return None


def _dtype(name: str, gpu: bool) -> torch.dtype:
    """Chooses the precision: bfloat16 on a GPU; on a CPU float32, which is faster without bfloat16 units."""
    names = {"bf16": torch.bfloat16, "fp32": torch.float32}
    if name == "auto":
        return torch.bfloat16 if gpu or _has_bf16_units() else torch.float32
    if name not in names:
        raise ConfigError(f"there is no precision {name!r}", hint="use auto, bf16 or fp32")
    return names[name]


def _has_bf16_units() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags
