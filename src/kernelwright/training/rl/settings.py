"""What a reinforcement-learning run can be told: the YAML (or TOML) files that `kernelwright train rl` takes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.evaluation.options import MAX_SECONDS, MAX_TRIALS
from kernelwright.generation import Kind
from kernelwright.training.fine_tune.settings import BaseModelSettings, LossSettings, Table, UpdateSettings
from kernelwright.training.pretrain.settings import MOST, MOST_JOBS, SEEDS

MOST_ROLLOUTS = 65_536
"""Rollouts of one step. The largest step of the papers has 1,024."""


class RlTable(Table):
    """Base of the tables of these settings: numbers are finite, since nothing can be made of others."""

    model_config = ConfigDict(allow_inf_nan=False)


class TaskSettings(RlTable):
    """Where tasks come from: a suite, or the generator."""

    suite: str | None = None
    """A suite's name, a folder of tasks or a JSONL file."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    count: int = Field(default=0, ge=0, le=MOST)
    """Generated tasks, where there is no suite."""
    split: str = "train"
    families: list[str] | None = None
    limit: int | None = Field(default=None, ge=1, le=MOST)

    @model_validator(mode="after")
    def _one_source(self) -> TaskSettings:
        if (self.suite is None) == (self.count == 0):
            raise ValueError("give either suite, with count=0, or count of generated tasks")
        return self


class RolloutSettings(RlTable):
    """How the policy is let play."""

    tasks: int = Field(default=8, ge=1, le=MOST_ROLLOUTS)
    """Of one step."""
    rollouts: int = Field(default=16, ge=2, le=MOST_ROLLOUTS)
    """Of each task."""
    turns: int = Field(default=1, ge=1, le=10_000)
    stop_when_correct: bool = False
    """End a rollout at its first right candidate; else later turns may make it faster."""
    context: Literal["recent", "top_w", "summary"] = "recent"
    """What later turns are shown of earlier ones: the latest, the best (Dr. Kernel), or the latest without their
    reasoning (Kevin)."""
    top_w: int = Field(default=4, ge=1, le=MOST)
    """Earlier turns that `top_w` shows."""
    temperature: float = Field(default=1.0, gt=0, le=1_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=2048, ge=1, le=MOST)
    backend: Kind = "auto"
    """What generates (`kernelwright.generation`): auto is our engine where it can read the model, else transformers."""

    @model_validator(mode="after")
    def _few_enough(self) -> RolloutSettings:
        if self.tasks * self.rollouts > MOST_ROLLOUTS:
            raise ValueError(f"a step of {self.tasks} x {self.rollouts} rollouts: at most {MOST_ROLLOUTS} are played")
        return self


class NamedSettings(RlTable):
    """Something from a table by name, with those of its parameters that are not its defaults."""

    name: str
    parameters: dict[str, Any] = {}


class FilterSettings(RlTable):
    """Which rows are not trained on (`training.rl.filters`)."""

    zero_variance: bool = True
    mismatch: bool = False
    """MRS: rows on whose probability sampler and trainer disagree."""
    low: float = Field(default=0.999, gt=0, le=1)
    high: float = Field(default=1.001, ge=1)
    veto: float = Field(default=1e-4, gt=0, le=1)
    widen: bool = True
    """Double the bounds' distance from 1 after a step in which more than 60 % were rejected."""
    profiling: bool = False
    """PRS: correct rows whose own kernels take little of the device's time."""
    redraw: int = Field(default=0, ge=0, le=1_000)
    """Dynamic sampling (DAPO): rounds at most in which groups whose rewards are all alike are replaced."""


class AlarmSettings(RlTable):
    """Signs that come before a policy's answers turn to junk. Shares are of a step's rows."""

    hacked: float = Field(default=0.3, ge=0)
    """Rejected by a guard."""
    unpaid: float = Field(default=0.2, ge=0)
    """Without a reward: faults of the harness, and what a backend cannot judge."""
    cut: float = Field(default=0.8, ge=0)
    """Ended by `max_tokens`."""
    unreadable: float = Field(default=0.9, ge=0)
    repetition: float = Field(default=0.6, ge=0)
    """Runs of 8 tokens that the same answer held before."""
    first_token: float = Field(default=0.3, ge=0)
    """Drift of the answers' first tokens from the first step's: total variation distance, 0 to 1, above what
    chance alone gives with so many answers."""
    entropy_low: float = Field(default=0.1, ge=0)
    """Entropy a token, as a share of the first step's."""
    entropy_high: float = Field(default=3.0, gt=0)
    entropy_floor: float = Field(default=0.1, ge=0)
    """Entropy a token, in nats, that is never too high: a multiple of what is next to nothing is noise."""
    judge_failed: float = Field(default=0.5, ge=0)
    """Of the candidates that a judge was asked about, those about which it gave no opinion."""
    stop_after: int = Field(default=0, ge=0, le=MOST)
    """Steps in a row with the same alarm after which the run ends; 0: never."""


class RlUpdateSettings(RlTable):
    """The updates of a step."""

    steps: int = Field(default=50, ge=1, le=MOST)
    seconds: float | None = Field(default=None, gt=0)
    """Wall seconds of steps within which the run ends: no step is begun that would go beyond, taking as long as the
    last one did; the first always is."""
    updates: int = Field(default=1, ge=1, le=MOST_ROLLOUTS)
    """Gradient steps on each step's rows: 1 is on-policy."""
    micro_tokens: int = Field(default=32_768, ge=1, le=2**40)
    """Tokens, padding included, of a forward pass."""
    lr: float = Field(default=1e-6, gt=0, le=1_000)
    warm_up: int = Field(default=0, ge=0, le=MOST)
    """Updates until the full learning rate."""
    adam_epsilon: float = Field(default=1e-8, gt=0, le=1)
    """What AdamW adds to the root of the squared gradients. Those of rewards are small, and where most of them are
    noise a larger one (1e-6) spares the weights that nothing is learnt of: docs/rl.md, "Small gradients"."""
    weight_decay: float = Field(default=0.0, ge=0, le=1_000)
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0, le=1_000_000)
    normalise: Literal["token", "constant", "row"] = "token"
    """What a gradient step's sum over tokens is divided by: its tokens, its rows times rollout.max_tokens (Dr. GRPO),
    or each row's own tokens and then the rows."""
    clip: float = Field(default=1.0, ge=0)
    """Largest norm of the gradient; 0: no clipping."""
    save_every: int = Field(default=10, ge=1, le=MOST)
    precision: Literal["auto", "bf16", "fp32"] = "auto"


TIMED = ("eager", "compile", "max-autotune")


class JudgingSettings(RlTable):
    """How candidates are judged (`kernelwright eval`)."""

    backend: Literal["auto", "cpu", "gpu"] = "auto"
    filter: bool = True
    """On a GPU: whether the functional machine judges first, and the GPU only what it does not find wrong."""
    small_sizes: bool = True
    """Without a GPU: at small sizes only (`EvalOptions.small_sizes`); a filter always is."""
    jobs: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Candidates judged at once; 0: one a core, and some more that wait for a GPU."""
    trials: int = Field(default=3, ge=1, le=MAX_TRIALS)
    """Calls that are checked."""
    gpu_trials: int = Field(default=1, ge=1, le=MAX_TRIALS)
    """On a GPU behind the filter, which has checked `trials` calls."""
    timeout: float = Field(default=30.0, gt=0, le=MAX_SECONDS)
    baselines: str = "eager"
    """What a GPU times beside a candidate, comma-separated: eager, compile, max-autotune; or none."""
    timing_seconds: float = Field(default=0.5, ge=0, le=MAX_SECONDS)
    replay: bool = True
    """On a GPU behind the filter: candidates whose host code only makes memory and launches are checked and timed by
    their launches alone, several in one process (`EvalOptions.replay`)."""
    strict_kernelbench: bool = False
    """Pay for what KernelBench's own evaluator would say, without guards: to study reward hacking, never to train."""
    verdicts: str | None = None
    """A folder of verdicts that steps, and runs on one machine, share (`runs.known_verdicts`). Inputs are then the same
    in every step, for else no verdict would be met again."""
    judge: str | None = None
    """A policy that gives the opinion term of the reward `stanford`, annealed off once execution pays. The weight that
    it begins with is that reward's `judge_weight`."""

    def timed_beside(self) -> tuple[str, ...]:
        """The names in `baselines`."""
        names = [name.strip() for name in self.baselines.split(",")]
        return tuple(dict.fromkeys(name for name in names if name not in ("", "none")))

    @model_validator(mode="after")
    def _known(self) -> JudgingSettings:
        for name in self.timed_beside():
            if name not in TIMED:
                raise ValueError(f"baselines: there is no {name!r} ({did_you_mean(name, TIMED, ', '.join(TIMED))})")
        return self


class CollectSettings(RlTable):
    """Rollouts to choose from, after the warm-up."""

    rollouts: int = Field(default=4, ge=1, le=MOST_ROLLOUTS)
    """Of each task."""
    turns: int = Field(default=4, ge=1, le=10_000)
    context: Literal["recent", "top_w", "summary"] = "recent"
    temperature: float = Field(default=1.0, gt=0, le=1_000)
    limit: int | None = Field(default=None, ge=1, le=MOST)
    """Of the tasks, the first ones."""


class RejectionSettings(RlTable):
    """After the warm-up: collect rollouts, keep those that paid off, fine-tune on their answers (CUDA Agent)."""

    collect: CollectSettings = CollectSettings()
    reward: str = "cuda_agent"
    """Kept are rollouts whose best turn has more than 0 of it, without loops and unreadable answers."""
    loss: LossSettings = LossSettings()
    length: int = Field(default=4096, ge=8, le=MOST)
    """Tokens of prompt and answer together at most."""
    train: UpdateSettings = UpdateSettings(epochs=1.0)


class RlSettings(RlTable):
    """A whole run of reinforcement learning."""

    name: str = "rl"
    note: str = ""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    model: BaseModelSettings
    tasks: TaskSettings
    rollout: RolloutSettings = RolloutSettings()
    reward: NamedSettings = NamedSettings(name="kevin")
    advantage: NamedSettings = NamedSettings(name="trloo")
    filters: FilterSettings = FilterSettings()
    alarms: AlarmSettings = AlarmSettings()
    train: RlUpdateSettings = RlUpdateSettings()
    judging: JudgingSettings = JudgingSettings()
    rejection: RejectionSettings | None = None
    """Given, the rest is the warm-up of rejection fine-tuning."""

    @model_validator(mode="after")
    def _known(self) -> RlSettings:
        from kernelwright.rewards.functions import load_reward

        try:
            _check_reward(self)
            _check_advantage(self.advantage)
            if self.rejection is not None:
                load_reward(self.rejection.reward)
        except ConfigError as error:
            raise ValueError(f"{error}" + (f" ({error.hint})" if error.hint else "")) from error
        return self


def _check_reward(settings: RlSettings) -> None:
    """Refuses what would fail, or silently pay for less, once answers have been played and judged."""
    from kernelwright.evaluation.options import EvalOptions
    from kernelwright.records import Evaluation, Timing, WorkloadResult
    from kernelwright.rewards.functions import BASELINES, PER_ANSWER, annealed_judge_weight, load_reward

    reward, judging, parameters = settings.reward, settings.judging, settings.reward.parameters
    pays = load_reward(reward.name)
    _check_parameters(pays, reward, PER_ANSWER)
    times = EvalOptions(backend=judging.backend).resolved() == "gpu" and judging.timing_seconds > 0
    timed = judging.timed_beside() if times else ()
    needs = BASELINES.get(reward.name, ())
    for name in needs if timed else ():
        if name not in timed and not (name == "compile" and "max-autotune" in timed):
            raise ConfigError(
                f"the reward {reward.name} needs the time of {name}, which is not measured",
                hint=f"set judging.baselines={','.join(dict.fromkeys(('eager', *needs)))}",
            )
    opinion: dict[str, Any] = {}
    if judging.judge is not None:
        if "judge" not in _keywords(pays):
            raise ConfigError(
                f"the reward {reward.name} has no term for judging.judge", hint="use reward.name=stanford"
            )
        annealed_judge_weight(0.0, start=judge_start(settings))
        opinion = {"judge": 1.0}
    wrong = Evaluation(task_id="t", task_hash="0", candidate_id="1", verdict="wrong", reason="other values")
    right = wrong.changed(verdict="correct", reason="", workloads=(WorkloadResult(name="w", passed=True),))
    judged = [None, wrong, right]
    if timed:  # else no answer of this run will have such an evaluation, and a reward that rests on it pays nothing
        eager, compiled = "eager" in timed, bool({"compile", "max-autotune"} & set(timed))
        timing = Timing(candidate_ms=1.0, eager_ms=2.0 if eager else None, compile_ms=1.5 if compiled else None)
        judged.append(right.changed(timing=timing, environment={"own_kernel_share": "0.5"}))

    def worth() -> list[float | None]:
        return [pays(evaluation, **parameters, **opinion).value for evaluation in judged]

    _check_finite(reward, worth)
    if all(value is None for value in worth()[2:]):
        raise ConfigError(
            f"{reward.name} gives right answers no reward with the parameters {parameters}: this run times nothing",
            hint="leave timed_only out, or judge on a GPU that times (judging.backend, .timing_seconds, .baselines)",
        )
    if len({value for value in worth() if value is not None}) == 1:
        where = "" if timed else ": this run times nothing"
        raise ConfigError(f"{reward.name} pays all answers alike with the parameters {parameters}{where}")
    unread, lost, *won = (pays(evaluation, **parameters).value for evaluation in judged)
    for name, less in (("a wrong one", lost), ("an answer without a candidate", unread)):
        if any(value is not None and less is not None and value < less for value in won):
            raise ConfigError(f"{reward.name} pays a right answer less than {name} with the parameters {parameters}")


def judge_start(settings: RlSettings) -> float:
    """What the judge's opinion weighs before execution pays."""
    from kernelwright.rewards.functions import load_reward

    default = _keywords(load_reward(settings.reward.name))["judge_weight"].default
    return float(settings.reward.parameters.get("judge_weight", default))


def _check_advantage(advantage: NamedSettings) -> None:
    from kernelwright.training.rl.advantages import load_advantage

    estimate = load_advantage(advantage.name)
    _check_parameters(estimate, advantage)
    _check_finite(advantage, lambda: estimate([0.0, 1.0], [0, 0], [0, 1], [0, 0], None, **advantage.parameters))


def _check_finite(settings: NamedSettings, result: Callable[[], Iterable[float | None]]) -> None:
    """Refuses parameters with which a function of a table fails, or gives what is no number."""
    try:
        sound = all(value is None or math.isfinite(value) for value in result())
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ConfigError(f"{settings.name} fails with the parameters {settings.parameters}: {error}") from error
    if not sound:
        raise ConfigError(f"{settings.name} gives no finite number with the parameters {settings.parameters}")


def _check_parameters(function: Any, settings: NamedSettings, not_set: Sequence[str] = ()) -> None:
    """Refuses names that are no parameters, and values of another type than theirs."""
    known = [name for name in _keywords(function) if name not in not_set]
    types = get_type_hints(function)
    for name, value in settings.parameters.items():
        if name not in known:
            raise ConfigError(f"{settings.name} has no parameter {name!r}", hint=f"it has {', '.join(known) or 'none'}")
        try:
            TypeAdapter(types[name], config=ConfigDict(strict=True)).validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise ConfigError(f"{settings.name}: the parameter {name} = {value!r}: {why}") from error


def _keywords(function: Any) -> dict[str, inspect.Parameter]:
    return {name: p for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}
