"""The updates of a pre-training run, in one of its processes."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelwright.errors import ConfigError
from kernelwright.solutions import APART, CANONICAL
from kernelwright.training.attention import Spans, choose, prepare
from kernelwright.training.checkpoint import load_state, save_model, save_state
from kernelwright.training.model import ModelShape, TrainingDecoder
from kernelwright.training.pretrain.muon import Muon
from kernelwright.training.pretrain.packing import Packing, Rows, arrays, epoch, label_count, most_documents, updates
from kernelwright.training.pretrain.preparing import Prepared
from kernelwright.training.pretrain.progress import Live, Log, Meter, line, peak_flops
from kernelwright.training.pretrain.settings import PretrainSettings
from kernelwright.training.pretrain.shards import Shards

MEASURED = 40
"""Updates of a process after which a run limited by seconds fixes its total number of updates."""


@dataclass
class RunProgress:
    """The progress of a run. `total` updates is None until a run limited by seconds has measured its speed."""

    step: int = 0
    tokens: int = 0
    total: int | None = None
    seconds: float = 0.0
    """Seconds of timed updates, over all sessions."""
    timed_tokens: int = 0


@dataclass(frozen=True)
class MicroBatch:
    """The inputs of one forward pass."""

    tokens: Tensor
    positions: Tensor
    labels: Tensor
    spans: Spans


@dataclass(frozen=True)
class UpdateInput:
    """The input of one update: this process's micro-batches, and the counts over all processes."""

    parts: tuple[MicroBatch, ...]
    labels: int
    tokens: int


class Run:
    """One process of a run. Raises `ConfigError` if the rows do not divide evenly over processes."""

    def __init__(self, settings: PretrainSettings, out: Path, accelerator: Any, data: Prepared, live: Live) -> None:
        self.settings, self.train, self.out = settings, settings.train, out
        self.accelerator, self.data, self.live = accelerator, data, live
        self.device = accelerator.device
        self.on_gpu = self.device.type == "cuda"
        self.processes, self.rank = accelerator.num_processes, accelerator.process_index
        parts = self.processes * self.train.accumulate
        if self.train.rows % parts:
            raise ConfigError(
                f"train.rows = {self.train.rows} is no multiple of processes x train.accumulate = {parts}",
                hint="change train.rows",
            )
        self.part_rows = self.train.rows // parts
        documents = most_documents(data.training, self.train.rows, self.train.length)
        self.packing = Packing(self.train.rows, self.train.length, settings.seed, documents)
        self.longest = min(self.train.length, settings.model.context)
        self.bf16 = self.train.precision == "bf16" or (self.train.precision == "auto" and self.on_gpu)
        self.progress = RunProgress(total=self.train.steps)
        self.meter = Meter()
        self.state = out / "state" / "state.pt"
        self._stop = False
        self._build()
        self._resume()

    def _build(self) -> None:
        torch.manual_seed(self.settings.seed)
        if self.on_gpu:
            torch.set_float32_matmul_precision("high")
        self.attention = choose(self.train.attention, self.device.type, self.train.compile)
        shape = ModelShape(self.data.tokenizer.size, **self.settings.model.model_dump())
        self.model = TrainingDecoder(shape, self.attention).to(self.device)
        named = list(self.model.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in named if p.ndim != 2 or "embed" in name]
        compiled = self.train.compile
        muon = Muon(matrices, self.train.muon_lr, weight_decay=self.train.weight_decay, compiled=compiled)
        adam = torch.optim.AdamW(
            others, self.train.adam_lr, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=self.on_gpu
        )
        self.optimizers: list[torch.optim.Optimizer] = [muon, adam]
        self.rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        if compiled:
            self.model.compile(dynamic=False)
        self.wrapped = self.accelerator.prepare(self.model) if self.processes > 1 else self.model

    def _resume(self) -> None:
        kept = load_state(self.state)
        if kept is None:
            return
        self.model.load_state_dict(kept["model"])
        for optimizer, state in zip(self.optimizers, kept["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        torch.set_rng_state(kept["rng"])
        self.progress = RunProgress(**kept["progress"])
        self.live.say(f"resumed after update {self.progress.step}", last=True)

    def save(self) -> None:
        """Saves the state to resume from."""
        if self.accelerator.is_main_process:
            optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
            state = {"model": self.model.state_dict(), "optimizers": optimizers, "rng": torch.get_rng_state()}
            save_state(self.state, {**state, "progress": asdict(self.progress)})

    def export(self) -> None:
        """Writes the checkpoint and removes the state of the unfinished run."""
        made = self.settings.data.generate
        tries = (CANONICAL.name, APART.name) if made is not None and made.schedules == "mixed" else ()
        save_model(self.model, self.out / "data", self.out, tries)
        self.state.unlink(missing_ok=True)

    def play(self) -> dict[str, Any]:
        """Makes the remaining updates; returns the facts. Raises `KeyboardInterrupt` after saving if interrupted."""
        p = self.progress
        log = Log(self.out / "log.jsonl", p.step) if self.accelerator.is_main_process else None
        saved = time.monotonic()
        losses: list[Tensor] = []
        row: dict[str, Any] = {}
        with self._signals(), _ahead(self._works(p.step)) as works:
            self.meter.restart()
            while p.total is None or p.step < p.total:
                work = next(works)
                losses.append(self._update(work) / max(1, work.labels))
                p.step, p.tokens = p.step + 1, p.tokens + work.tokens
                if self.meter.count(work.tokens):
                    self._wait()
                    self.meter.restart()
                self._plan()
                if p.step % self.train.log_every == 0 or p.step == p.total:
                    row, losses = self._report(losses, log), []
                stopped = self._stopped()
                if stopped or time.monotonic() - saved > self.train.save_seconds:
                    self._wait()
                    self.meter.pause()
                    self.save()
                    saved = time.monotonic()
                    self.meter.resume()
                if stopped:
                    raise KeyboardInterrupt
        self.live.say(line(row, p.total) if row else "nothing was left to do", last=True)
        return self._facts(row)

    def _update(self, work: UpdateInput) -> Tensor:
        """Makes one update. Returns this process's summed loss on the device, without synchronising."""
        rate = self._rate()
        for optimizer, full in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = full * rate
        total = torch.zeros((), device=self.device)
        for number, part in enumerate(work.parts, 1):
            last = number == len(work.parts)
            with nullcontext() if last or self.processes == 1 else self.accelerator.no_sync(self.wrapped):
                loss = self._loss(self._on_device(part))
                # gradients are averaged over processes; the loss is a mean over all labels of the update
                (loss * (self.processes / work.labels)).backward()
            total += loss.detach()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    def _loss(self, part: MicroBatch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.wrapped(part.tokens, part.positions, part.labels, part.spans)
        assert isinstance(loss, Tensor)
        return loss

    def _rate(self) -> float:
        """Returns the factor of the learning rates for the next update: warm-up, constant, then decay to zero."""
        p, train = self.progress, self.train
        up = min(1.0, (p.step + 1) / train.warm_up) if train.warm_up else 1.0
        if train.tokens is not None:
            done = p.tokens / train.tokens
        else:
            done = p.step / p.total if p.total else 0.0
        down = (1.0 - done) / (1.0 - train.flat) if done > train.flat else 1.0
        return min(up, max(0.0, down) ** train.fall)

    def _plan(self) -> None:
        """Sets the total number of updates once known: by tokens at the end, by seconds after `MEASURED` updates."""
        p, train = self.progress, self.train
        if p.total is not None:
            return
        if train.tokens is not None:
            p.total = p.step if p.tokens >= train.tokens else None
        elif self.meter.updates >= MEASURED and train.seconds is not None:
            self._wait()
            seconds = train.seconds - p.seconds - self.meter.elapsed()
            left = torch.tensor([seconds / self.meter.seconds_an_update()], device=self.device)
            if self.processes > 1:
                left = self.accelerator.reduce(left, "mean")
            p.total = p.step + max(0, int(left.item()))

    def _report(self, losses: list[Tensor], log: Log | None) -> dict[str, Any]:
        """Logs and returns a row: the mean loss since the last row, and the speed."""
        p = self.progress
        loss = torch.stack(losses).mean()
        if self.processes > 1:
            loss = self.accelerator.reduce(loss, "sum")
        mean = float(loss.item())  # synchronises with the device
        settled, tokens, seconds = self.meter.read()
        if settled:
            p.seconds, p.timed_tokens = p.seconds + seconds, p.timed_tokens + tokens
        row: dict[str, Any] = {"step": p.step, "tokens": p.tokens, "loss": mean, "rate": self._rate()}
        speed = tokens / seconds if tokens else None
        row |= {"tokens_per_s": speed and round(speed), "mfu": self._mfu(speed), "seconds": round(p.seconds, 2)}
        if p.step % self.train.eval_every < self.train.log_every or p.step == p.total:
            row["held_out_loss"] = self.held_out_loss()
            self.meter.restart()
        if log is not None:
            log.add(row)
        self.live.say(line(row, p.total))
        return row

    def held_out_loss(self) -> float:
        """Returns the mean loss on held-out answers. Every process computes the same."""
        total, labels = 0.0, 0
        held_out = self.data.held_out
        packing = Packing(self.part_rows, self.train.length, 0, self.packing.documents)
        for rows in epoch(held_out, packing, 0, whole=False):
            # gradients stay enabled: without them the model would be recompiled
            part = self._on_device(self._part(held_out, rows))
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                total += float(self.model(part.tokens, part.positions, part.labels, part.spans).item())
            labels += label_count(held_out, rows)
        return total / max(1, labels)

    def _works(self, start: int) -> Iterator[UpdateInput]:
        shards = self.data.training
        for rows in updates(shards, self.packing, start):
            sizes = shards.lengths[[pair for row in rows for pair in row]]
            first = self.rank * self.train.accumulate * self.part_rows
            mine = range(first, first + self.train.accumulate * self.part_rows, self.part_rows)
            parts = tuple(self._part(shards, rows[at : at + self.part_rows]) for at in mine)
            yield UpdateInput(parts, int(sizes[:, 1].sum()), int(sizes.sum()))

    def _part(self, shards: Shards, rows: Rows) -> MicroBatch:
        """Builds the micro-batch of some rows, in pinned memory for asynchronous copies to a GPU."""
        made = arrays(shards, rows, self.train.length, self.packing.documents, self.longest)
        tensors = [torch.from_numpy(a) for a in (made.tokens, made.positions, made.labels, made.documents, made.bounds)]
        if self.on_gpu:
            tensors = [t.pin_memory() for t in tensors]
        tokens, positions, labels, documents, bounds = tensors
        return MicroBatch(tokens, positions, labels, Spans(documents, bounds, self.longest))

    def _on_device(self, part: MicroBatch) -> MicroBatch:
        tokens, positions, labels, documents, bounds = (
            t.to(self.device, non_blocking=True)
            for t in (part.tokens, part.positions, part.labels, part.spans.documents, part.spans.bounds)
        )
        return MicroBatch(tokens, positions, labels, prepare(self.attention, Spans(documents, bounds, self.longest)))

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _mfu(self, speed: float | None) -> float | None:
        """Returns the model FLOPs utilisation at a speed in tokens per second; None without a known peak."""
        peak = peak_flops(torch.cuda.get_device_name(self.device)) if self.on_gpu else None
        if peak is None or speed is None:
            return None
        sizes = self.data.training.lengths[self.data.training.usable].sum(1).astype(float)
        attended = float((sizes**2).sum() / sizes.sum()) / 2
        return round(speed * self.model.shape.flops_a_token(attended) / (peak * self.processes), 4)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Finishes the current update and saves on Ctrl-C or SIGTERM; a second signal interrupts at once."""

        def asked(number: int, frame: object) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _stopped(self) -> bool:
        """Tells whether any process was interrupted. All processes stop after the same update, checked every
        `log_every` updates."""
        if self.processes > 1:
            if self.progress.step % self.train.log_every:
                return False
            flag = torch.tensor([float(self._stop)], device=self.device)
            self._stop = bool(self.accelerator.reduce(flag, "sum").item())
        return self._stop

    def _facts(self, row: dict[str, Any]) -> dict[str, Any]:
        p = self.progress
        shape = self.model.shape
        speed = p.timed_tokens / p.seconds if p.seconds else None
        return {
            "parameters": sum(x.numel() for x in self.model.parameters()),
            "shape": shape.plain(),
            "updates": p.step,
            "tokens": p.tokens,
            "loss": row.get("loss"),
            "held_out_loss": row.get("held_out_loss"),
            "tokens_per_s": round(speed) if speed else None,
            "mfu": self._mfu(speed),
            "seconds": {"training": round(p.seconds, 1)},
            "attention": self.attention,
            "precision": "bf16" if self.bf16 else "fp32",
            "device": torch.cuda.get_device_name(self.device) if self.on_gpu else "processor",
            "processes": self.processes,
            "torch": torch.__version__,
        }


@contextmanager
def _ahead(made: Iterator[UpdateInput], depth: int = 4) -> Iterator[Iterator[UpdateInput]]:
    """Prefetches up to `depth` items of an iterator in a thread."""
    ready: queue.Queue[UpdateInput | BaseException] = queue.Queue(depth)
    ended = threading.Event()

    def put(item: UpdateInput | BaseException) -> None:
        while not ended.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def make() -> None:
        try:
            for item in made:
                put(item)
                if ended.is_set():
                    return
        except BaseException as error:  # re-raised by `take`
            put(error)

    def take() -> Iterator[UpdateInput]:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        ended.set()
        thread.join()
