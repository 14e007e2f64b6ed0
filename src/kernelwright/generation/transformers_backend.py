"""Generates with any causal language model that transformers loads: continuous batching on a GPU, else `generate`.

The model is a separate copy, so that training and generation need not agree on precision, mode or attention.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from kernelwright.errors import ConfigError
from kernelwright.generation.continuous import ContinuousFailed, ContinuousSession, suits
from kernelwright.generation.hub import HubTokenizer, asked_how, context_of, ends_of, load_model, load_tokenizer
from kernelwright.generation.plain import PlainSession
from kernelwright.generation.queued import Queued

STEP_SECONDS = 0.1


class TransformersBackend(Queued):
    """A model in this process. `continuous` turns continuous batching on; by default it is on for a GPU.

    Continuous batching reports log-probabilities after the temperature only. Without `tempered` it therefore answers
    requests of temperature 0 and 1 only, and `generate` answers the others.
    """

    name = "transformers"

    def __init__(
        self,
        model: Any,
        tokenizer: HubTokenizer,
        *,
        rows: int | None = None,
        tempered: bool = False,
        continuous: bool | None = None,
    ) -> None:
        from transformers import GenerationConfig

        gpu = model.device.type == "cuda"
        super().__init__(
            tokenizer,
            ends_of(model.generation_config, tokenizer.inner),
            context_of(model.config, tokenizer),
            rows or (64 if gpu else 16),
            asked_how(model.config),
        )
        model.generation_config = GenerationConfig(pad_token_id=0)  # drops the checkpoint's penalties and filters
        self.model, self.tempered = model, tempered
        self.continuous = gpu if continuous is None else continuous
        self._session: PlainSession | ContinuousSession | None = None

    @classmethod
    def load(
        cls,
        model: str,
        *,
        threads: int | None = None,
        tempered: bool = False,
        attention: str = "auto",
        trust_remote_code: bool = False,
    ) -> TransformersBackend:
        """Loads a model from a folder or the Hub. Raises `ConfigError`."""
        tokenizer = load_tokenizer(model, trust_remote_code)
        loaded = load_model(model, attention, trust_remote_code)
        if threads and loaded.device.type == "cpu":
            torch.set_num_threads(threads)
        return cls(loaded, tokenizer, tempered=tempered)

    @property
    def busy(self) -> bool:
        """Tells whether a step would do anything."""
        return bool(self._waiting) or (self._session is not None and self._session.busy)

    def step(self) -> None:
        """Admits waiting requests that fit, and waits until an answer has ended, at most `STEP_SECONDS`."""
        self.sweep()
        try:
            session = self._open()
            if session is None:
                return
            with self._lock:
                session.admit(self._waiting)
            session.wait(STEP_SECONDS)
        except ContinuousFailed as error:
            self._fall_back(error)

    def _open(self) -> PlainSession | ContinuousSession | None:
        """Returns the busy session, or a session for the first waiting request; None without requests."""
        session = self._session
        if session is not None and (session.busy or not self._waiting):
            return session
        if not self._waiting:
            return None
        first = self._waiting[0]
        wanted = self.continuous and suits(first) and (self.tempered or first.sampling.temperature in (0, 1))
        if session is not None and wanted == isinstance(session, ContinuousSession) and session.takes(first):
            return session
        self.rest()
        self._session = (
            ContinuousSession(self.model, self, first) if wanted else PlainSession(self.model, self, self.tempered)
        )
        return self._session

    def _fall_back(self, error: ContinuousFailed) -> None:
        """Turns continuous batching off and queues its unanswered requests for `generate`."""
        print(f"{error}; plain generate takes over", file=sys.stderr)
        self.continuous = False
        session = self._session
        if isinstance(session, ContinuousSession):
            left = [running for running in session.left() if not running.cancelled]
            self.rest()
            with self._lock:
                self._waiting.extendleft(reversed(left))

    def rest(self) -> None:
        """Cancels running requests and frees threads and caches."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies weights in, converted to this copy's precision. Raises `ConfigError`."""
        self.rest()
        try:
            self.model.load_state_dict(dict(weights), strict=True)
        except RuntimeError as error:
            raise ConfigError(f"these are not the weights of {self.tokenizer.name!r}: {error}"[:500]) from error
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()  # continuous batching reads them on another stream
