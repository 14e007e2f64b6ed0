"""Runs transformers' `generate` on one padded batch at a time; each answer is available when it ends.

Tokens are drawn as in our engine (`inference.sampling`), from uniform numbers by the request's seed, so that a sample
depends on its batch only by rounding. `generate` only appends the token that was drawn.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from kernelwright.generation.queued import Queued
from kernelwright.inference.engine import Running
from kernelwright.inference.sampling import draw


class PlainSession:
    """Answers batch after batch. One thread drives it; each batch runs in a thread of its own."""

    def __init__(self, model: Any, owner: Queued, tempered: bool) -> None:
        self._model, self._owner, self._tempered = model, owner, tempered
        self._draws: _Draws | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._news = threading.Event()

    @property
    def busy(self) -> bool:
        """Tells whether a batch is running."""
        return self._thread is not None

    def takes(self, running: Running) -> bool:
        """Tells whether the session can answer a request: always."""
        return True

    def admit(self, waiting: deque[Running]) -> None:
        """Begins a batch with the first requests, unless one is running."""
        if self._thread is not None or not waiting:
            return
        batch = self._batch(waiting)
        self._draws = _Draws(batch, self._owner, self._tempered, self._model.device, self._news)
        self._thread = threading.Thread(target=self._run, args=(self._draws,), name="generate", daemon=True)
        self._thread.start()

    def _batch(self, waiting: deque[Running]) -> list[Running]:
        """Takes at most `rows` requests. A finished row keeps growing with the batch and must stay in the context."""
        owner, batch = self._owner, [waiting.popleft()]
        prompt, answer = len(batch[0].prompt), owner.limit(batch[0])
        while waiting and len(batch) < owner.rows:
            longest = max(prompt, len(waiting[0].prompt)), max(answer, owner.limit(waiting[0]))
            if sum(longest) > owner.context:
                break
            prompt, answer = longest
            batch.append(waiting.popleft())
        return batch

    def _run(self, draws: _Draws) -> None:
        try:
            _generate(self._model, draws)
        except BaseException as error:  # raised in the driving thread
            self._error = error
        finally:
            self._news.set()

    def wait(self, seconds: float) -> None:
        """Waits until an answer has ended, at most `seconds`. Raises the batch's error."""
        thread = self._thread
        if thread is None:
            return
        self._news.wait(seconds)
        self._news.clear()
        if thread.is_alive() and not self._over():
            return
        thread.join()
        self._thread = self._draws = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _over(self) -> bool:
        return self._error is not None or (self._draws is not None and all(self._draws.ended))

    def close(self) -> None:
        """Cancels the running batch."""
        if self._thread is None or self._draws is None:
            return
        for running in self._draws.batch:
            running.cancelled = True
        self._thread.join()
        self._thread = self._draws = self._error = None


class _Draws(LogitsProcessor):
    """Draws a token for every row, and reports rows as they end."""

    def __init__(
        self, batch: list[Running], owner: Queued, tempered: bool, device: torch.device, news: threading.Event
    ) -> None:
        self.batch, self._owner, self._tempered, self._news = batch, owner, tempered, news
        self.limits = [owner.limit(running) for running in batch]
        self.ended = [False] * len(batch)
        self.step = 0
        self.ids: list[list[int]] = [[] for _ in batch]
        self._logs: list[list[float]] = [[] for _ in batch]
        asked = [running.sampling for running in batch]
        self._uniforms = torch.from_numpy(np.stack([s.uniforms(max(self.limits)) for s in asked])).to(device)
        self._temperature = torch.tensor([float(s.temperature) for s in asked], device=device)
        self._top_p = torch.tensor([float(s.top_p) for s in asked], device=device)
        self._top_k = torch.tensor([s.top_k for s in asked], device=device)
        self._filtered = any(s.top_p < 1 or s.top_k > 0 for s in asked)

    @torch.inference_mode()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Returns scores (rows, vocabulary) that are minus infinity for all but the drawn tokens."""
        vocabulary = scores.shape[-1]
        top_k = torch.where(self._top_k > 0, self._top_k, vocabulary)
        ids, logs = draw(
            scores.float(),
            self._uniforms[:, self.step],
            self._temperature,
            self._top_p,
            top_k,
            self._filtered,
            self._tempered,
        )
        self.step += 1
        for row, (token, log) in enumerate(zip(ids.tolist(), logs.tolist(), strict=True)):
            if not self.ended[row]:
                self._append(row, token, log)
        return torch.full_like(scores, float("-inf")).scatter_(1, ids[:, None], 0.0)

    def _append(self, row: int, token: int, log_prob: float) -> None:
        running, ids = self.batch[row], self.ids[row]
        ids.append(token)
        self._logs[row].append(log_prob)
        if token in self._owner.ends or len(ids) >= self.limits[row] or running.cancelled:
            self.ended[row] = True
            self._owner.finish(running, ids, self._logs[row])
            self._news.set()


class _RowsEnded(StoppingCriteria):
    """Tells `generate` which rows have ended."""

    def __init__(self, draws: _Draws) -> None:
        self._draws = draws

    def __call__(self, input_ids: Tensor, scores: Any, **_more: Any) -> Tensor:
        """Returns a boolean for each row, (rows,)."""
        return torch.tensor(self._draws.ended, device=input_ids.device)


def _generate(model: Any, draws: _Draws) -> None:
    """Answers a batch of prompts, padded on the left."""
    prompts = [running.prompt for running in draws.batch]
    longest = max(map(len, prompts))
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    with torch.inference_mode():
        model.generate(
            input_ids=tokens.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=GenerationConfig(do_sample=False, max_new_tokens=max(draws.limits), pad_token_id=0),
            logits_processor=LogitsProcessorList([draws]),
            stopping_criteria=StoppingCriteriaList([_RowsEnded(draws)]),
        )
