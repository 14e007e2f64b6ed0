"""TRL's SFT trainer with our losses: token weights from flags of each token, without ever building the logits.

The forward pass is TRL's fused head, which gives the gold tokens' log-probabilities (and the entropy) in tiles. What is
ours is the loss on them, the collator that carries flags, and what is logged. Import this only to train: it loads TRL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from trl import SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from kernelwright.errors import ConfigError
from kernelwright.training.losses import LossOutput, load_loss
from kernelwright.training.post_settings import LossSettings
from kernelwright.training.samples import CUDA, TARGET, THOUGHT

IGNORE = -100


@dataclass
class FlagCollator(DataCollatorForLanguageModeling):
    """Pads or joins rows of `input_ids` and `flags`; labels are the targets' ids. With `padding_free`, the rows of a
    batch become one, with positions that begin anew at each sample."""

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
    """A row as TRL's collator takes it, as arrays: lists of Python's numbers cost a millisecond a row."""
    ids = np.asarray(row["input_ids"], np.int64)
    labels = np.where(np.asarray(row["flags"]) & TARGET, ids, IGNORE)
    made = {"input_ids": ids, "labels": labels}
    return made | ({"seq_lengths": np.asarray(row["seq_lengths"]).tolist()} if "seq_lengths" in row else {})


def by_sample(values: Tensor, inputs: dict[str, Any], fill: float | bool) -> Tensor:
    """Values of predicted tokens `(1, length - 1)` of joined samples as a row a sample; others are as they were.

    Differentiable. Where samples were joined, `inputs` has their bounds (`cu_seq_lens_q`) and each token's position.
    """
    if "cu_seq_lens_q" not in inputs:
        return values
    samples, longest = inputs["cu_seq_lens_q"].numel() - 1, int(inputs["max_length_q"])
    rows = values.new_full((samples, longest), fill)
    place = (inputs["seq_idx"][0, 1:].long(), inputs["position_ids"][0, 1:].long())
    return rows.index_put(place, values[0])


class WeightedSFTTrainer(SFTTrainer):
    """`SFTTrainer` with a loss of ours. Rows are `input_ids` and `flags`, prepared; the collator is `FlagCollator`."""

    def __init__(self, *args: Any, loss: LossSettings, reference: Any = None, **more: Any) -> None:
        """`reference`: for asft with full tuning, the model before training (with an adapter, that is its base)."""
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
        """The loss of one micro-batch. `num_items_in_batch`: target tokens of the whole update, over all processes."""
        flags = inputs.pop("flags")
        inputs["use_cache"] = False
        outputs = model(**inputs, fused_lm_head=True)
        out = self._loss(model, inputs, flags, outputs, num_items_in_batch)
        self._note(inputs, outputs, out)
        return (out.loss, outputs) if return_outputs else out.loss

    def _loss(self, model: Any, inputs: dict[str, Any], flags: Tensor, outputs: Any, items: Any) -> LossOutput:
        settings = self.loss_settings
        parameters = settings.parameters()
        if settings.name == "eaft":
            parameters["entropy"] = by_sample(outputs.entropy.detach(), inputs, 0.0)
        if settings.name == "asft":
            parameters["reference_log_probs"] = by_sample(self._reference(model, inputs), inputs, 0.0)
        flags = by_sample(flags[:, 1:], inputs, 0)
        if settings.name == "cuset":
            parameters["window_mask"] = (flags & THOUGHT) == 0
            if parameters.get("sample_weight") == "normalised":
                parameters["mean_sample_weight"] = self._sample_weights.before(self.state.global_step)
        reduction = parameters.get("reduction", "token_mean")
        if reduction == "token_mean" and items is not None:
            parameters["denominator"] = torch.as_tensor(items).clamp(min=1)
        out = self.loss_function(
            by_sample(outputs.log_probs, inputs, 0.0),
            by_sample(outputs.label_mask, inputs, False),
            (flags & CUDA) != 0,
            **parameters,
        )
        return LossOutput(out.loss * self._scale(reduction, items), out.stats, out.token_weights)

    def _scale(self, reduction: str, items: Any) -> float:
        """What makes the micro-batches of an update, over all processes, add up to one reduction.

        Where `items` is given, Trainer leaves the division to the loss, and processes' gradients are averaged.
        """
        if items is None:
            return 1.0
        if reduction in ("token_mean", "sum"):
            return float(self.accelerator.num_processes) if self.args.average_tokens_across_devices else 1.0
        return 1.0 / self.current_gradient_accumulation_steps  # each micro-batch is a mean of its own

    @torch.no_grad()
    def _reference(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """The gold tokens' log-probabilities under the model before training."""
        with self._base_model(model) as base:
            log_probs: Tensor = base(**inputs, fused_lm_head=True).log_probs
        return log_probs

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
        """Keeps what to log on the device: nothing here waits for it."""
        mode = self._mode()
        tokens = out.stats["tokens"].clamp(min=1)
        found = dict(out.stats)
        found["entropy"] = outputs.entropy.detach().sum() / tokens
        found["mean_token_accuracy"] = outputs.is_top1.sum() / tokens
        if "attention_mask" in inputs:
            found["seen"] = inputs["attention_mask"].sum()
        else:  # filled there: a copy would wait for the device
            found["seen"] = torch.full((), inputs["input_ids"].numel(), device=tokens.device)
        for name, value in found.items():
            self._stats[mode].setdefault(name, []).append(value.detach().float())
        if mode == "train" and self.loss_settings.sample_weight == "normalised":
            self._sample_weights.add(self.state.global_step, out.stats["raw_sample_weight"])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the means of what was noted since the last time. Raises `ConfigError` where training has diverged."""
        mode = self._mode()
        stats, self._stats[mode] = self._stats[mode], {}
        if stats:
            names = sorted(stats)
            local = torch.stack([torch.stack(stats[name]).mean() for name in names])
            sums = torch.stack([torch.stack(stats[name]).sum() for name in ("seen", "non_finite", "tokens")])
            means = self.accelerator.gather(local[None]).mean(dim=0).tolist()
            seen, non_finite, tokens = self.accelerator.gather(sums[None]).sum(dim=0).tolist()
            prefix = "eval_" if mode == "eval" else ""
            shown = dict(zip(names, means, strict=True)) | {"non_finite": non_finite, "tokens": tokens}
            logs.update({f"{prefix}{name}": value for name, value in shown.items() if name != "seen"})
            if mode == "train":
                self._total_train_tokens += int(seen)
                logs["num_tokens"] = self._total_train_tokens
            if non_finite > 0.5 * tokens:
                raise ConfigError(
                    f"training has diverged at update {self.state.global_step}: most log-probabilities are not finite",
                    hint="lower train.lr, raise train.warm_up, or use train.precision=fp32",
                )
        super().log(logs, start_time)


class _RunningMean:
    """The mean sample weight of the last whole update: what normalised sample weights are divided by in the next."""

    def __init__(self) -> None:
        self._value: Tensor | None = None
        self._step = -1
        self._found: list[Tensor] = []

    def before(self, step: int) -> Tensor | None:
        """That of the update before `step`; None in the first one. All processes ask for a new step together."""
        if step != self._step:
            if self._found:
                self._value = torch.stack(self._found).mean()
                if torch.distributed.is_available() and torch.distributed.is_initialized():
                    torch.distributed.all_reduce(self._value)
                    self._value /= torch.distributed.get_world_size()
            self._step, self._found = step, []
        return self._value

    def add(self, step: int, value: Tensor) -> None:
        """Notes one micro-batch of update `step`."""
        self.before(step)
        self._found.append(value)
