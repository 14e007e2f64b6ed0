"""TRL's SFT trainer with our losses: token weights from each token's flags, without materialising the logits.

The forward pass uses TRL's fused head, which computes the gold tokens' log-probabilities (and the entropy) in tiles.
This module adds the loss on them, a collator for the flags, and statistics for the log. Import this only to train: it
loads TRL.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from trl import SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from kernelwright.errors import ConfigError
from kernelwright.training.fine_tune.heads import RecordedHead
from kernelwright.training.fine_tune.run import diverged
from kernelwright.training.fine_tune.samples import CUDA, TARGET, THOUGHT
from kernelwright.training.fine_tune.settings import LossSettings
from kernelwright.training.fine_tune.short_runs import ShortRuns
from kernelwright.training.losses import LossOutput, load_loss

IGNORE = -100
SAMPLE_WEIGHT = "sample_weight.json"
"""The file in a checkpoint with the divisor of normalised sample weights for the next update."""
_COUNTS = ("tokens", "non_finite", "samples", "windowed", "seen")
"""The statistics of a micro-batch that are sums; the others are means."""
_OF_SAMPLES = ("hardest", "sample_weight", "raw_sample_weight")
"""The statistics that are means over samples with a window; other means are over target tokens."""
_DIVISORS = {"token_mean": "tokens", "sample_mean": "samples"}
"""The count that divides the loss, for the reductions whose divisor is a sum over all micro-batches of an update."""


@dataclass
class FlagCollator(DataCollatorForLanguageModeling):
    """Pads or joins rows of `input_ids` and `flags`; labels are the targets' ids.

    With `padding_free`, the rows of a batch are joined into one, with positions restarting at each sample.
    """

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        flags = [torch.from_numpy(np.array(row["flags"], np.uint8)) for row in examples]
        batch = super().torch_call([_labelled(row) for row in examples])
        if self.padding_free:
            joined = torch.cat(flags)[None]
            batch["flags"] = torch.nn.functional.pad(joined, (0, batch["input_ids"].shape[1] - joined.shape[1]))
        else:
            batch["flags"] = torch.zeros(batch["input_ids"].shape, dtype=torch.uint8)
            for row, values in zip(batch["flags"], flags, strict=True):
                row[: len(values)] = values
        return batch


def _labelled(row: dict[str, Any]) -> dict[str, Any]:
    """Converts a row for TRL's collator, with numpy arrays: Python lists cost a millisecond per row."""
    ids = np.asarray(row["input_ids"], np.int64)
    labels = np.where(np.asarray(row["flags"]) & TARGET, ids, IGNORE)
    made = {"input_ids": ids, "labels": labels}
    return made | ({"seq_lengths": np.asarray(row["seq_lengths"]).tolist()} if "seq_lengths" in row else {})


def by_sample(values: Tensor, inputs: dict[str, Any], fill: float | bool) -> Tensor:
    """Splits values of predicted tokens `(1, length - 1)` of joined samples into one row per sample, padded by `fill`.

    Values of unjoined rows are returned unchanged. Differentiable. For joined samples, `inputs` has their bounds
    (`cu_seq_lens_q`) and each token's position.
    """
    if "cu_seq_lens_q" not in inputs:
        return values
    samples, longest = inputs["cu_seq_lens_q"].numel() - 1, int(inputs["max_length_q"])
    rows = values.new_full((samples, longest), fill)
    place = (inputs["seq_idx"][0, 1:].long(), inputs["position_ids"][0, 1:].long())
    return rows.index_put(place, values[0])


_REFUSED = (ValueError, RuntimeError, TypeError, AttributeError, NotImplementedError)


def check_runs(trainer: Any) -> None:
    """Raises `ConfigError` for a model that does not work with the fused head; tries it on a few tokens."""
    try:
        _tried(trainer, np.zeros(4, np.int64), [4])
    except _REFUSED as error:
        raise ConfigError(
            f"the model cannot be trained with TRL's fused head: {_first_line(error)}",
            hint="use a model whose class has its backbone as `base_model` and its head as output embeddings",
        ) from error


def check_apart(trainer: Any, room: int) -> None:
    """Raises `ConfigError` for a model that does not separate the samples of a packed row of `room` tokens.

    Such a model ignores the samples' bounds and attends to the previous sample, or fails on packed rows.
    """
    model, size = trainer.model, 12
    hint = "set train.packing=false"
    weight = next(model.parameters())
    if weight.device != trainer.args.device:  # a model to be sharded is still on the CPU, where long rows
        room = 2 * size  # are slow
    vocabulary = model.get_input_embeddings().num_embeddings
    count = max(2, room // size)
    others = torch.arange((count - 1) * size) % vocabulary
    try:
        found = [
            _tried(trainer, torch.cat([(others[:size] + shift) % vocabulary, others]).numpy(), [size] * count)[size:]
            for shift in (1, vocabulary // 2 + 1)
        ]
    except _REFUSED as error:
        raise ConfigError(f"the model cannot keep packed samples apart: {_first_line(error)}", hint=hint) from error
    moved = float((found[0] - found[1]).abs().max())
    if not moved <= (1e-4 if weight.dtype == torch.float32 else 0.05):
        raise ConfigError(
            f"the model cannot keep packed samples apart: log-probabilities of one move by {moved:.2g} with the tokens "
            "of the one before it",
            hint=hint,
        )


@torch.no_grad()
def _tried(trainer: Any, ids: Any, sizes: list[int]) -> Tensor:
    """Returns the untrained model's log-probabilities of a packed row of samples made by the collator."""
    model, training = trainer.model, trainer.model.training
    batch = trainer.data_collator(
        [{"input_ids": ids, "flags": np.full(len(ids), TARGET, np.uint8), "seq_lengths": sizes}]
    )
    del batch["flags"]
    device = next(model.parameters()).device
    inputs = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()}
    model.eval()
    try:
        log_probs: Tensor = model(**inputs, use_cache=False, fused_lm_head=True).log_probs
    finally:
        model.train(training)
    return log_probs[0].float()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]


class WeightedSFTTrainer(ShortRuns, SFTTrainer):
    """`SFTTrainer` with one of our losses. Rows are prepared `input_ids` and `flags`; use `FlagCollator`."""

    def __init__(self, *args: Any, loss: LossSettings, reference: Any = None, **more: Any) -> None:
        """`reference`: the model before training, for asft with full tuning (with an adapter, its base is used)."""
        self.loss_settings = loss
        self.loss_function = load_loss(loss.name, loss.parameters())
        self._stats: dict[str, dict[str, list[Tensor]]] = {"train": {}, "eval": {}}
        self._sample_weights = _RunningMean()
        super().__init__(*args, **more)
        self.reference = self.accelerator.prepare_model(reference, evaluation_mode=True) if reference else None

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns: Any = ["input_ids", "flags", "seq_lengths"]

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the loss of one micro-batch. `num_items_in_batch`: the count of `_get_num_items_in_batch`."""
        flags = inputs.pop("flags")
        inputs["use_cache"] = False
        name = self.loss_settings.name
        head = RecordedHead(self.accelerator.unwrap_model(model)) if name in ("eaft", "asft") else None
        with head or contextlib.nullcontext():
            outputs = model(**inputs, fused_lm_head=True)
        more = {}
        if head is not None and name == "eaft":
            more["entropy"] = by_sample(head.entropy(outputs.label_mask), inputs, 0.0)
        elif head is not None:
            anchor = self._reference(model, inputs)
            more["kl"] = by_sample(head.divergence(outputs.label_mask, anchor), inputs, 0.0)
        out = self._loss(inputs, flags, outputs, more, num_items_in_batch)
        self._note(inputs, outputs, out)
        return (out.loss, outputs) if return_outputs else out.loss

    def _loss(
        self, inputs: dict[str, Any], flags: Tensor, outputs: Any, more: dict[str, Tensor], items: Any
    ) -> LossOutput:
        """Computes the loss by name; `more` are its own inputs, `(samples, length)`."""
        settings = self.loss_settings
        parameters = {**settings.parameters(), **more}
        flags = by_sample(flags[:, 1:], inputs, 0)
        if settings.name == "cuset":
            parameters["window_mask"] = (flags & THOUGHT) == 0
            if parameters.get("sample_weight") == "normalised":
                parameters["mean_sample_weight"] = self._sample_weights.before(self.state.global_step)
        reduction = parameters.get("reduction", "token_mean")
        if reduction in ("token_mean", "sample_mean") and items is not None:
            parameters["denominator"] = items
        out = self.loss_function(
            by_sample(outputs.log_probs, inputs, 0.0),
            by_sample(outputs.label_mask, inputs, False),
            (flags & CUDA) != 0,
            **parameters,
        )
        return LossOutput(out.loss * self._scale(reduction, items), out.stats, out.token_weights)

    def _scale(self, reduction: str, items: Any) -> float:
        """Returns the factor that makes the micro-batches of an update, over all processes, sum to one reduction.

        If `items` is given, Trainer leaves the division to the loss, and gradients are averaged over processes.
        """
        if items is None:
            return 1.0
        if reduction != "mask_mean":
            return float(self.accelerator.num_processes) if self.args.average_tokens_across_devices else 1.0
        return 1.0 / self.current_gradient_accumulation_steps  # each micro-batch is a separate mean

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
        """Returns the loss's divisor for an update, over all processes: the number of predicted target tokens, or with
        `sample_mean` of samples with target tokens."""
        counted = []
        for batch in batch_samples:
            targets = by_sample(batch["labels"][:, 1:], batch, IGNORE) != IGNORE
            counted.append(targets.any(dim=1) if self.loss_settings.reduction == "sample_mean" else targets)
        as_labels = [torch.where(targets, 0, IGNORE) for targets in counted]
        return super()._get_num_items_in_batch([{"labels": one, "shift_labels": one} for one in as_labels], device)

    @torch.no_grad()
    def _reference(self, model: Any, inputs: dict[str, Any]) -> RecordedHead:
        """Returns the model before training, with its last hidden states for the batch."""
        with self._base_model(model) as base, RecordedHead(self.accelerator.unwrap_model(base)) as recorded:
            base(**inputs, fused_lm_head=True)
        return recorded

    @contextlib.contextmanager
    def _base_model(self, model: Any) -> Iterator[Any]:
        if self.reference is not None:
            yield self.reference
            return
        adapted = self.accelerator.unwrap_model(model)
        if not hasattr(adapted, "disable_adapter"):
            raise ConfigError("asft with full tuning needs the model before training as `reference`")
        was_training = model.training
        model.eval()
        with adapted.disable_adapter():
            yield model
        model.train(was_training)

    def _mode(self) -> str:
        model: Any = self.model
        return "train" if model.training else "eval"

    def _note(self, inputs: dict[str, Any], outputs: Any, out: LossOutput) -> None:
        """Records statistics on the device, without synchronising."""
        mode = self._mode()
        tokens = out.stats["tokens"].clamp(min=1)
        found = dict(out.stats)
        found["entropy"] = outputs.entropy.detach().sum() / tokens
        found["mean_token_accuracy"] = outputs.is_top1.sum() / tokens
        if mode == "eval" and self._weight_of("loss") in found:
            found["loss"] = out.loss
        if "attention_mask" in inputs:
            found["seen"] = inputs["attention_mask"].sum()
        else:  # filled on the device: a copy would synchronise
            found["seen"] = torch.full((), inputs["input_ids"].numel(), device=tokens.device)
        for name, value in found.items():
            self._stats[mode].setdefault(name, []).append(value.detach().float())
        if mode == "train" and self.loss_settings.sample_weight == "normalised":
            self._sample_weights.add(self.state.global_step, out.stats["raw_sample_weight"], out.stats["windowed"])

    def _weight_of(self, name: str) -> str:
        """Returns the count that weighs a micro-batch's mean in the overall mean; empty if none does."""
        if name == "loss":
            return _DIVISORS.get(self.loss_settings.reduction or "token_mean", "")
        return "windowed" if name in _OF_SAMPLES else "tokens"

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.loss_settings.sample_weight == "normalised":
            mean = self._sample_weights.before(self.state.global_step)
            folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            if self.is_world_process_zero() and mean is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / SAMPLE_WEIGHT).write_text(json.dumps({"mean": float(mean)}), encoding="utf-8")
        super()._save_checkpoint(model, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        kept = Path(resume_from_checkpoint) / SAMPLE_WEIGHT
        if kept.is_file():
            mean = json.loads(kept.read_text(encoding="utf-8"))["mean"]
            self._sample_weights.take(torch.tensor(mean, device=self.args.device))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the means of the statistics since the last call. Raises `ConfigError` if training has diverged."""
        mode = self._mode()
        stats, self._stats[mode] = self._stats[mode], {}
        if stats:
            kept = {name: torch.stack(values).double() for name, values in stats.items()}
            names = sorted(kept)
            weighted = {name: self._weight_of(name) for name in names if name not in _COUNTS}
            local = torch.stack(
                [(kept[name] * kept[weighted[name]] if name in weighted else kept[name]).sum() for name in names]
            )
            found = dict(zip(names, self.accelerator.gather(local[None]).sum(dim=0).tolist(), strict=True))
            means = {name: found[name] / max(found[weight], 1.0) for name, weight in weighted.items()}
            tokens, non_finite = found["tokens"], found["non_finite"]
            prefix = "eval_" if mode == "eval" else ""
            shown = means | {"non_finite": non_finite, "tokens": tokens}
            logs.update({f"{prefix}{name}": value for name, value in shown.items()})
            if mode == "train":
                self._total_train_tokens += int(found["seen"])
                logs["num_tokens"] = self._total_train_tokens
            if non_finite > 0.5 * tokens or not math.isfinite(logs.get("loss", 0.0)):
                what = "the loss is" if not math.isfinite(logs.get("loss", 0.0)) else "most log-probabilities are"
                raise diverged(f"{what} not finite", self.state.global_step)
        super().log(logs, start_time)


class _RunningMean:
    """The mean sample weight of the last complete update: the divisor of normalised sample weights in the next one."""

    def __init__(self) -> None:
        self._value: Tensor | None = None
        self._step = -1
        self._found: list[Tensor] = []

    def before(self, step: int) -> Tensor | None:
        """Returns the mean of the update before `step`; None in the first update.

        All processes must call it together for a new step: it all-reduces.
        """
        if step != self._step:
            if self._found:
                total = torch.stack(self._found).sum(dim=0)
                if torch.distributed.is_available() and torch.distributed.is_initialized():
                    torch.distributed.all_reduce(total)
                self._value = total[0] / total[1].clamp(min=1)
            self._step, self._found = step, []
        return self._value

    def take(self, value: Tensor) -> None:
        """Restores the mean of a checkpoint."""
        self._value, self._found = value, []

    def add(self, step: int, mean: Tensor, samples: Tensor) -> None:
        """Records a micro-batch of update `step`: the mean over its samples, and their number."""
        self.before(step)
        self._found.append(torch.stack([mean * samples, samples.to(mean.dtype)]))
