"""From a step's rows to gradient steps: advantages, filters, padded batches, the clipped loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelwright.training.ranks import Ranks
from kernelwright.training.rl.advantages import load_advantage
from kernelwright.training.rl.filters import (
    Selection,
    dynamic_sampling,
    mismatch_rejection,
    profiling_rejection,
    varied_groups,
    widened,
)
from kernelwright.training.rl.policy_loss import policy_loss
from kernelwright.training.rl.rollouts import RolloutRow
from kernelwright.training.rl.settings import RlSettings


@dataclass(frozen=True)
class UpdateBatch:
    """Rows as tensors: `tokens` `(rows, length)`, `mask` (true for sampled tokens) and `sampled` `(rows, length - 1)`,
    `advantage` `(rows,)`."""

    tokens: Tensor
    mask: Tensor
    sampled: Tensor
    """The sampler's log-probabilities; 0 outside the mask."""
    advantage: Tensor
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Trained:
    """The result of training on a step's rows."""

    facts: dict[str, float]
    """Numbers for the log."""
    advantage: np.ndarray
    used: np.ndarray
    """One entry per row: true if it was trained on."""


NOTHING = 1e-9
"""Advantages up to this size are rounding errors."""


@dataclass
class Bounds:
    """The bounds of mismatch rejection, which may widen from step to step."""

    low: float
    high: float


def advantages(settings: RlSettings, rows: Sequence[RolloutRow]) -> np.ndarray:
    """Returns one advantage per row, by the run's estimator; with `zero_variance`, 0 in groups with equal rewards."""
    score = [row.reward for row in rows]
    columns = [[getattr(row, name) for row in rows] for name in ("group", "trajectory", "turn")]
    found = load_advantage(settings.advantage.name)(score, *columns, None, **settings.advantage.parameters)
    if settings.filters.zero_variance:
        found = np.where(varied_groups(score, columns[0]), found, 0.0)
    return np.asarray(found, dtype=np.float64)


def groups_that_teach(settings: RlSettings, rows: Sequence[RolloutRow], wanted: int) -> Selection:
    """Selects groups with a gradient (dynamic sampling): rewards differ and some row has an advantage.

    Differing rewards are not enough: multi-turn rollouts may have equal rewards in each turn but different ones across
    turns, and an estimator that compares rollouts turn by turn then gives no advantage.
    """
    groups = [row.group for row in rows]
    moved = np.where(varied_groups([row.reward for row in rows], groups), advantages(settings, rows), 0.0)
    return dynamic_sampling(np.where(np.abs(moved) > NOTHING, moved, 0.0), groups, wanted=wanted)


def counted_rows(settings: RlSettings, rows: Sequence[RolloutRow]) -> np.ndarray:
    """Marks the rows that the loss averages over, before filters: rows with a reward, in groups not skipped.

    Rows with advantage 0 count too.
    """
    score = [row.reward for row in rows]
    paid = np.asarray([row.reward is not None and bool(row.token_ids) for row in rows], dtype=bool)
    return paid & varied_groups(score, [row.group for row in rows]) if settings.filters.zero_variance else paid


def batches(
    rows: Sequence[RolloutRow], weights: np.ndarray, chosen: Sequence[int], limit: int, device: Any
) -> Iterator[UpdateBatch]:
    """Yields the chosen rows, longest first, in batches of at most `limit` tokens, padding included."""
    order = sorted(chosen, key=lambda i: (-_length(rows[i]), i))
    while order:
        longest = _length(rows[order[0]])
        size = max(1, limit // longest)
        part, order = order[:size], order[size:]
        tokens = torch.zeros(len(part), longest, dtype=torch.long)
        mask = torch.zeros(len(part), longest, dtype=torch.bool)
        sampled = torch.zeros(len(part), longest)
        for at, i in enumerate(part):
            first, end = len(rows[i].prompt_ids), _length(rows[i])
            tokens[at, :end] = torch.tensor(rows[i].prompt_ids + rows[i].token_ids)
            mask[at, first:end] = True
            sampled[at, first:end] = torch.tensor(rows[i].log_probs)
        weight = torch.tensor(weights[list(part)], dtype=torch.float32)
        yield UpdateBatch(
            tokens.to(device), mask[:, 1:].to(device), sampled[:, 1:].to(device), weight.to(device), tuple(part)
        )


def _length(row: RolloutRow) -> int:
    return len(row.prompt_ids) + len(row.token_ids)


def gold_log_probs(model: Any, batch: UpdateBatch) -> Tensor:
    """Returns log-probabilities `(rows, length - 1)`, 0 outside the mask, without the logits of a whole batch."""
    labels = batch.tokens.clone()
    labels[:, 1:][~batch.mask] = -100
    labels[:, 0] = -100
    attention = torch.ones_like(batch.tokens)  # padding is on the right, where causal attention ignores it
    log_probs: Tensor = model(
        input_ids=batch.tokens, attention_mask=attention, labels=labels, fused_lm_head=True
    ).log_probs
    return log_probs


class Updater:
    """The gradient steps of a run."""

    def __init__(self, settings: RlSettings, model: Any, optimizer: Any, autocast: Any, ranks: Ranks) -> None:
        self.settings, self.model, self.optimizer, self.autocast = settings, model, optimizer, autocast
        self.ranks = ranks
        self.bounds = Bounds(settings.filters.low, settings.filters.high)
        self.done = 0
        """Gradient steps so far."""
        self._mine: frozenset[int] = frozenset()
        """Indices of the step's rows that this process computes."""

    def step(self, rows: Sequence[RolloutRow], seed: int) -> Trained:
        """Trains on a step's rows. All processes get the same rows; each computes its share."""
        weights = advantages(self.settings, rows)
        owner = np.random.default_rng(seed).permutation(len(rows)) % self.ranks.count
        self._mine = frozenset(np.flatnonzero(owner == self.ranks.rank).tolist())
        old, ratio_facts, keep = self._filtered(rows, weights, seed)
        counted = np.flatnonzero(keep & counted_rows(self.settings, rows))
        chosen = [i for i in counted.tolist() if weights[i] != 0.0]
        facts = {"trained_rows": float(len(chosen)), **ratio_facts}
        trained = Trained(facts, weights, np.isin(np.arange(len(rows)), chosen))
        if not chosen:
            return trained
        order = np.random.default_rng(seed).permutation(counted).tolist()
        parts = [order[i :: self.settings.train.updates] for i in range(self.settings.train.updates)]
        found = [self._gradient_step(rows, weights, part, old) for part in parts if weights[part].any()]
        for name in ("loss", "grad_norm"):
            facts[name] = float(np.mean([one[name] for one in found]))
        facts["clipped"] = sum(one["clipped"] for one in found) / max(1.0, sum(one["tokens"] for one in found))
        return trained

    @torch.no_grad()
    def _filtered(
        self, rows: Sequence[RolloutRow], weights: np.ndarray, seed: int
    ) -> tuple[dict[int, Tensor], Any, np.ndarray]:
        """Returns by row the log-probabilities before the update, the filters' log entries, and the mask of kept
        rows."""
        filters = self.settings.filters
        keep = np.ones(len(rows), dtype=bool)
        facts: dict[str, float] = {}
        old: dict[int, Tensor] = {}
        wanted = [i for i in range(len(rows)) if weights[i] != 0.0 and rows[i].token_ids]
        mine: dict[int, tuple[float, bool]] = {}
        for batch in self._batches(rows, weights, wanted):
            with self.autocast():
                log_probs = gold_log_probs(self.model, batch).float()
            found = mismatch_rejection(
                log_probs, batch.sampled, batch.mask, low=self.bounds.low, high=self.bounds.high, veto=filters.veto
            )
            for at, i in enumerate(batch.rows):
                old[i] = log_probs[at]
                mine[i] = (float(found.ratio[at]), bool(found.keep[at]))
        everyone = {i: seen for part in self.ranks.gather(mine) for i, seen in part.items()}
        ratios = [everyone[i][0] for i in wanted]
        if filters.mismatch:
            keep[wanted] = [everyone[i][1] for i in wanted]
        if not np.isnan(ratios).all():
            facts["sampler_ratio"] = float(np.nanmean(ratios))
        if filters.mismatch and wanted:
            facts["mismatch_rejected"] = 1.0 - float(keep[wanted].mean())
            if filters.widen:
                self.bounds = Bounds(*widened(self.bounds.low, self.bounds.high, facts["mismatch_rejected"]))
        if filters.profiling and rows:
            correct = [row.verdict == "correct" for row in rows]
            profiled = profiling_rejection([row.facts.get("own_share") for row in rows], correct, seed)
            facts["profiling_rejected"] = 1.0 - float(profiled.mean())
            keep &= profiled
        return old, facts, keep

    def _batches(self, rows: Sequence[RolloutRow], weights: np.ndarray, chosen: Sequence[int]) -> Iterator[UpdateBatch]:
        """Yields batches of this process's share of the chosen rows."""
        device = next(self.model.parameters()).device
        mine = [i for i in chosen if i in self._mine]
        return batches(rows, weights, mine, self.settings.train.micro_tokens, device)

    def _gradient_step(
        self, rows: Sequence[RolloutRow], weights: np.ndarray, part: Sequence[int], old: dict[int, Tensor]
    ) -> dict[str, float]:
        """Makes one update on a part of the rows. Rows with advantage 0 count in the denominator but need no pass.

        Returns the loss, the gradient norm, and the numbers of `tokens` and of `clipped` tokens in the other rows.
        """
        train = self.settings.train
        self.model.train()
        denominator = {
            "token": float(sum(len(rows[i].token_ids) for i in part)),
            "row": float(len(part)),
            "constant": float(len(part) * self.settings.rollout.max_tokens),
        }[train.normalise]
        loss, clipped, tokens = 0.0, 0.0, 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for batch in self._batches(rows, weights, [i for i in part if weights[i] != 0.0]):
            length = batch.mask.shape[1]
            before = torch.stack([_fitted(old[i], length) for i in batch.rows])
            with self.autocast():
                log_probs = gold_log_probs(self.model, batch)
            out = policy_loss(
                log_probs,
                before,
                batch.advantage,
                batch.mask,
                clip_low=train.clip_low,
                clip_high=train.clip_high,
                normalise=train.normalise,
                denominator=denominator,
            )
            out.loss.backward()
            loss, clipped = loss + float(out.loss.detach()), clipped + float(out.clipped)
            tokens += float(out.tokens)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        for parameter in trained:
            if parameter.grad is None:  # a process without rows must still join the all-reduce
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.add([p.grad for p in trained])
        norm = torch.nn.utils.clip_grad_norm_(trained, train.clip or float("inf"))
        self.done += 1
        for group in self.optimizer.param_groups:
            group["lr"] = train.lr * min(1.0, self.done / train.warm_up if train.warm_up else 1.0)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.model.eval()
        loss, clipped, tokens = (sum(part) for part in zip(*self.ranks.gather((loss, clipped, tokens)), strict=True))
        return {"loss": loss, "grad_norm": float(norm), "clipped": clipped, "tokens": tokens}


def _fitted(values: Tensor, length: int) -> Tensor:
    """Pads or cuts a row's log-probabilities to another batch's length; only padding is cut or added."""
    return torch.nn.functional.pad(values, (0, max(0, length - len(values))))[:length]
