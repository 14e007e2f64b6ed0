"""The judge's side of an oracle: asks for a task's plan and for trials, restarts the process when it dies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from kernelwright.errors import TaskError, UnsupportedTask
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout, Frame
from kernelwright.evaluation.processes.pool import Child, ChildLimits, Pool
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import (
    Elements,
    Movement,
    Outline,
    Picked,
    ProductRuns,
    Summaries,
    TaskPlan,
    Trial,
    TrialData,
    noise,
)
from kernelwright.records import Precision, Task, Workload

KEPT_BYTES = 16 << 20
"""Bytes of trials that a client caches, for candidates that are judged on equal inputs."""
MOST_MOVEMENTS = 4
"""The sizes of which a client remembers what the reference has moved."""
ORACLE_SECONDS = 120.0
ORACLE_MB = 12_288


class OracleClient:
    """The oracle of one task. Started at the first request, restarted when it dies."""

    def __init__(self, task: Task, pool: Pool) -> None:
        self.task = task
        self.pool = pool
        self.child: Child | None = None
        self._made: dict[str, TrialData] = {}
        """The last trials by their request, up to `KEPT_BYTES`."""
        self._movements: dict[str, list[Movement]] = {}
        """What the reference has moved, by the size's constants."""

    def _ask(self, header: dict[str, Any], tensors: tuple[TensorBytes, ...] = ()) -> Frame:
        if self.child is None:
            self.child = self.pool.spawn("oracle", ChildLimits(int(ORACLE_SECONDS * 4), ORACLE_MB))
        try:
            answer = self.child.ask(header, tensors, deadline=time.monotonic() + ORACLE_SECONDS)
        except ChannelTimeout as error:
            self.close()
            raise TaskError(
                f"the reference of task {self.task.task_id!r} did not finish within {ORACLE_SECONDS:.0f} s",
                hint="make the task's sizes smaller, or state smaller workloads in its task.toml",
            ) from error
        except ChannelClosed as error:
            fate = self.child.natural_fate()
            self.close()
            raise TaskError(
                f"the reference of task {self.task.task_id!r} ended its process: it {fate}",
                hint="run the reference by itself to see why; it may need more memory than there is",
            ) from error
        if answer.kind == "failed":
            if answer.header.get("unsupported"):
                raise UnsupportedTask(answer.header["message"], hint=answer.header.get("hint"))
            raise TaskError(
                f"task {self.task.task_id!r}: {answer.header['message']}",
                hint=answer.header.get("hint") or "run the reference by itself to see the whole error",
            )
        return answer

    def plan(self, budget: dict[str, int], seed: int) -> TaskPlan:
        """Returns sizes and distributions of this task; raises `TaskError` when its reference does not run."""
        declared = [w.model_dump(mode="json") for w in self.task.workloads if w.purpose == "functional"]
        header = {"kind": "plan", "source": self.task.source, "workloads": declared, "budget": budget, "seed": seed}
        answer = self._ask(header).header
        return TaskPlan(
            [Workload.model_validate(w) for w in answer["workloads"]],
            Workload.model_validate(answer["declared"]) if answer["declared"] else None,
            answer["distributions"],
            answer["notes"],
            [Workload.model_validate(w) for w in answer["large"]],
            [Workload.model_validate(w) for w in answer["long"]],
        )

    def trial(
        self, trial: Trial, call_seed: int, randomise: bool = True, precision: Precision = "float32"
    ) -> TrialData:
        """Returns inputs and expected outputs of one call, with the errors of honest runs in that precision; without
        `randomise`, weights are as the constructor leaves them."""
        asked = {**self._call(trial, call_seed, randomise), "precision": precision}
        key = repr({**asked, "source": ""})
        if key in self._made:
            return self._made[key]
        answer = self._ask({"kind": "trial", **asked})
        facts, tensors = answer.header, answer.tensors
        first, count = facts["input_count"], facts["output_count"]
        made = self._made[key] = TrialData(
            facts["values"],
            tensors[:first],
            tensors[first : first + count],
            tensors[first + count :],
            facts["low_error"],
            facts["input_scale"],
            tuple(tuple(s) for s in facts["shapes"]),
            tuple(facts["dtypes"]),
            lambda run: self._nearby(trial, call_seed, randomise, run),
            facts["handed"],
            facts["changed"],
            facts["optional"],
            facts["slack"],
            [None if pair is None else (pair[0], pair[1]) for pair in facts["own_errors"]],
            self._products(asked, trial),
        )
        while sum(one.nbytes for one in self._made.values()) > KEPT_BYTES:
            del self._made[next(iter(self._made))]
        return made

    def _products(self, call: dict[str, Any], trial: Trial) -> ProductRuns:
        """Returns the runs of a trial's reference with other products; each is made once."""
        asked = {**call, "kind": "products"}

        @cache
        def run(noise: int | None) -> Summaries | None:
            found: Summaries | None = self._ask({**asked, "noise": noise}).header["errors"]
            return found

        return ProductRuns(call["precision"], lambda: run(None), lambda k: run((trial.input_seed << 4) + k))

    def _nearby(self, trial: Trial, call_seed: int, randomise: bool, run: int) -> list[np.ndarray] | None:
        """Returns a trial's outputs in float64 on inputs moved by noise; runs 2k and 2k + 1 use opposite noise."""
        seed, sign = noise(trial.input_seed, run)
        call = self._call(trial, call_seed, randomise)
        answer = self._ask({"kind": "nearby", **call, "noise": seed, "sign": sign})
        return [t.array() for t in answer.tensors] if answer.header["worked"] else None

    def movements(self, trial: Trial, call_seed: int) -> list[Movement]:
        """Returns for each output what the reference has only moved there, at a trial's size and on the task's own
        values: far values make a maximum or a condition look like a move."""
        key = repr(trial.workload.constants)
        if key not in self._movements:
            answer = self._ask({"kind": "movement", **self._call(replace(trial, distribution="own"), call_seed)})
            masks = [t.array().astype(bool) for t in answer.tensors]
            told = zip(answer.header["outputs"], masks, strict=True)
            self._movements[key] = [Movement(**facts, moved=mask) for facts, mask in told]
            while len(self._movements) > MOST_MOVEMENTS:
                del self._movements[next(iter(self._movements))]
        return self._movements[key]

    def outline(self, size: Workload, trial: Trial, most_real: int = 0) -> Outline | str:
        """Returns the arguments of a call at `size`, with samples of a trial's values; or the reason why there are
        none. With up to `most_real` elements the inputs are made whole, and any size gets the model's weights."""
        asked = {"kind": "outline", **self._call(trial, trial.input_seed), "large": size.constants}
        answer = self._ask({**asked, "most_real": most_real})
        facts = answer.header
        if facts["problem"]:
            return str(facts["problem"])
        count = len(answer.tensors) - len(facts["state"])
        state = list(zip(facts["state"], answer.tensors[count:], strict=True))
        return Outline(
            facts["values"],
            answer.tensors[:count],
            facts["forms"],
            facts["exact"],
            None if facts["no_values"] else state,
            facts["no_values"],
            facts["whole"],
        )

    def elements(
        self, size: Workload, trial: Trial, outline: Outline, picked: Picked, small: Sequence[Workload]
    ) -> Elements | str:
        """Returns the reference at picked elements of an outlined call, or the reason why it cannot be computed.

        It is computed on some rows, and for the elements in these, if at one of the `small` sizes rows turn out to be
        independent; without such sizes, on all of the inputs.
        """
        asked = {**self._call(trial, trial.input_seed), "large": size.constants, "real": outline.real}
        asked["small"] = [w.constants for w in small]
        asked |= {"shapes": outline.shapes, "outputs": [list(s) for s in picked.shapes], "noise": 0, "sign": 1}
        answer = self._ask({"kind": "elements", **asked}, picked.indices)
        if answer.header["problem"]:
            return str(answer.header["problem"])
        n = len(picked.indices)
        kept, exact, honest = (answer.tensors[k * n : (k + 1) * n] for k in range(3))

        def nearby(run: int) -> list[np.ndarray] | None:
            seed, sign = noise(trial.input_seed, run)
            moved = self._ask({"kind": "elements", **asked, "noise": seed, "sign": sign}, picked.indices)
            return [t.array() for t in moved.tensors[n:]] if moved.header.get("worked") else None

        return Elements(kept, exact, honest, answer.header["input_scale"], nearby)

    def _call(self, trial: Trial, call_seed: int, randomise: bool = True) -> dict[str, Any]:
        return {
            "source": self.task.source,
            "constants": trial.workload.constants,
            "distribution": trial.distribution,
            "seed": trial.input_seed,
            "weight_seed": trial.weight_seed,
            "call_seed": call_seed,
            "randomise": randomise,
            "before": trial.before,
        }

    def shortcuts(
        self, trial: Trial, call_seed: int, only: list[str] | None, ignored: list[int]
    ) -> dict[str, tuple[TensorBytes, ...]]:
        """Returns the reference's outputs on less than a trial's inputs, by the null kernel's name
        (`tasks.shortcuts`)."""
        header = {"kind": "shortcuts", **self._call(trial, call_seed), "only": only, "ignored": ignored}
        answer = self._ask(header)
        count = answer.header["output_count"]
        return {n: answer.tensors[i * count : (i + 1) * count] for i, n in enumerate(answer.header["names"])}

    def lint(self, workload: Workload, declared: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """Returns the results of `tasks.lint`: `notes`, `unread`, `memory_gb`, and `hardening`, the values the task can
        take."""
        header = {"kind": "lint", "source": self.task.source, "constants": workload.constants}
        return self._ask({**header, "declared": declared, "seed": seed}).header

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None
