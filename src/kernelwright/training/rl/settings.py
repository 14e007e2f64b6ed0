"""Settings of a reinforcement-learning run: the YAML (or TOML) files that `kernelwright train rl` takes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from kernelwright.errors import ConfigError, did_you_mean
from kernelwright.evaluation.options import MAX_SECONDS, MAX_TRIALS
from kernelwright.generation import Kind
from kernelwright.records import Precision
from kernelwright.training.fine_tune.settings import BaseModelSettings, LossSettings, Table, UpdateSettings
from kernelwright.training.pretrain.settings import MOST, MOST_JOBS, SEEDS

MOST_ROLLOUTS = 65_536
"""The most rollouts of one step. The largest step in the papers has 1,024."""


class RlTable(Table):
    """Base of these settings' tables; all numbers must be finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class TaskSettings(RlTable):
    """The source of the tasks: a suite or the generator."""

    suite: str | None = None
    """A suite's name, a folder of tasks or a JSONL file."""
    seed: int = Field(default=0, ge=0, lt=SEEDS)
    count: int = Field(default=0, ge=0, le=MOST)
    """The number of generated tasks, without a suite."""
    split: str = "train"
    families: list[str] | None = None
    limit: int | None = Field(default=None, ge=1, le=MOST)

    @model_validator(mode="after")
    def _one_source(self) -> TaskSettings:
        if (self.suite is None) == (self.count == 0):
            raise ValueError("give either suite, with count=0, or count of generated tasks")
        return self


class RolloutSettings(RlTable):
    """The rollouts of a step: their number, turns, context and sampling."""

    tasks: int = Field(default=8, ge=1, le=MOST_ROLLOUTS)
    """Tasks of one step."""
    rollouts: int = Field(default=16, ge=2, le=MOST_ROLLOUTS)
    """Rollouts of each task."""
    turns: int = Field(default=1, ge=1, le=10_000)
    stop_when_correct: bool = False
    """End a rollout at its first correct candidate; otherwise later turns may make it faster."""
    context: Literal["recent", "top_w", "summary"] = "recent"
    """The earlier turns shown to later ones: the latest, the best (Dr. Kernel), or the latest without their reasoning
    (Kevin)."""
    top_w: int = Field(default=4, ge=1, le=MOST)
    """The number of earlier turns that `top_w` shows."""
    temperature: float = Field(default=1.0, gt=0, le=1_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=2048, ge=1, le=MOST)
    backend: Kind = "auto"
    """The generation back-end (`kernelwright.generation`): auto is our engine if it can load the model, else
    transformers."""

    @model_validator(mode="after")
    def _few_enough(self) -> RolloutSettings:
        if self.tasks * self.rollouts > MOST_ROLLOUTS:
            raise ValueError(f"a step of {self.tasks} x {self.rollouts} rollouts: at most {MOST_ROLLOUTS} are played")
        return self


class NamedSettings(RlTable):
    """An entry of a table by name, with the parameters that differ from its defaults."""

    name: str
    parameters: dict[str, Any] = {}


class FilterSettings(RlTable):
    """Filters that exclude rows from training (`training.rl.filters`)."""

    zero_variance: bool = True
    mismatch: bool = False
    """MRS: reject rows on whose probability sampler and trainer disagree."""
    low: float = Field(default=0.999, gt=0, le=1)
    high: float = Field(default=1.001, ge=1)
    veto: float = Field(default=1e-4, gt=0, le=1)
    widen: bool = True
    """Double the bounds' distance from 1 after a step in which more than 60 % of the rows were rejected."""
    profiling: bool = False
    """PRS: reject correct rows whose own kernels take a small share of the device's time."""
    redraw: int = Field(default=0, ge=0, le=1_000)
    """Dynamic sampling (DAPO): the most rounds of replacing groups whose rewards are all equal."""


class AlarmSettings(RlTable):
    """Limits of early signs of policy collapse. Shares are of a step's rows."""

    hacked: float = Field(default=0.3, ge=0)
    """The share of rows that a rule rejected."""
    unpaid: float = Field(default=0.2, ge=0)
    """The share of rows without a reward: harness errors and unsupported candidates."""
    cut: float = Field(default=0.8, ge=0)
    """The share of answers cut off at `max_tokens`."""
    unreadable: float = Field(default=0.9, ge=0)
    repetition: float = Field(default=0.6, ge=0)
    """The share of 8-grams of tokens that occurred before in the same answer."""
    first_token: float = Field(default=0.3, ge=0)
    """Drift of the answers' first tokens from the first step: total variation distance, 0 to 1, beyond the distance
    expected by chance."""
    entropy_low: float = Field(default=0.1, ge=0)
    """Entropy per token, as a share of the first step's."""
    entropy_high: float = Field(default=3.0, gt=0)
    entropy_floor: float = Field(default=0.1, ge=0)
    """Entropy per token, in nats, up to which `entropy_high` raises no alarm: multiples of a tiny entropy are noise."""
    judge_failed: float = Field(default=0.5, ge=0)
    """The share of candidates without an opinion, of those that a judge was asked about."""
    stop_after: int = Field(default=0, ge=0, le=MOST)
    """Consecutive steps with the same alarm after which the run ends; 0: never."""


class RlUpdateSettings(RlTable):
    """The updates of a step."""

    steps: int = Field(default=50, ge=1, le=MOST)
    seconds: float | None = Field(default=None, gt=0)
    """The limit on wall seconds of all steps. A step does not start if it would exceed the limit, taking as long as
    the last one; the first step always starts."""
    updates: int = Field(default=1, ge=1, le=MOST_ROLLOUTS)
    """Gradient steps on each step's rows; 1 is on-policy."""
    micro_tokens: int = Field(default=32_768, ge=1, le=2**40)
    """Tokens of a forward pass, padding included."""
    lr: float = Field(default=1e-6, gt=0, le=1_000)
    warm_up: int = Field(default=0, ge=0, le=MOST)
    """Updates of linear warm-up to the full learning rate."""
    adam_epsilon: float = Field(default=1e-8, gt=0, le=1)
    """AdamW's epsilon. Policy gradients are small; if most are noise, a larger epsilon (1e-6) protects the weights that
    get no signal: docs/rl.md, "Small gradients"."""
    weight_decay: float = Field(default=0.0, ge=0, le=1_000)
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0, le=1_000_000)
    normalise: Literal["token", "constant", "row"] = "token"
    """The divisor of a gradient step's sum over tokens: its tokens, its rows times rollout.max_tokens (Dr. GRPO), or
    each row's tokens and then the rows."""
    clip: float = Field(default=1.0, ge=0)
    """The largest gradient norm; 0: no clipping."""
    save_every: int = Field(default=10, ge=1, le=MOST)
    precision: Literal["auto", "bf16", "fp32"] = "auto"


TIMED = ("eager", "compile", "max-autotune")


class JudgingSettings(RlTable):
    """The judging of candidates (`kernelwright eval`)."""

    backend: Literal["auto", "cpu", "gpu"] = "auto"
    filter: bool = True
    """On a GPU: the functional machine judges first, and the GPU only candidates that it does not reject."""
    small_sizes: bool = True
    """Without a GPU: judge at small sizes only (`EvalOptions.small_sizes`), as a filter always does."""
    jobs: int = Field(default=0, ge=0, le=MOST_JOBS)
    """Candidates judged concurrently; 0: one per core, plus some that wait for a GPU."""
    trials: int = Field(default=3, ge=1, le=MAX_TRIALS)
    """Checked calls per candidate."""
    gpu_trials: int = Field(default=1, ge=1, le=MAX_TRIALS)
    """Checked calls on a GPU after the filter, which has checked `trials` calls."""
    timeout: float = Field(default=30.0, gt=0, le=MAX_SECONDS)
    baselines: str = "eager"
    """The baselines that a GPU times, comma-separated: eager, compile, max-autotune; or none."""
    timing_seconds: float = Field(default=0.5, ge=0, le=MAX_SECONDS)
    replay: bool = True
    """On a GPU after the filter: repeat the programs of candidates that do not depend on values, several candidates per
    process (`EvalOptions.replay`)."""
    precision: Precision | None = None
    """The precision of products (`--precision` of `kernelwright eval`); each task's own by default."""
    strict_kernelbench: bool = False
    """Reward the verdict of KernelBench's own evaluator, without guards: to study reward hacking, never to train."""
    verdicts: str | None = None
    """The folder of a verdict cache shared by steps, and by runs on one machine (`runs.known_verdicts`). Inputs are
    then the same in every step, since a cached verdict is for equal inputs only."""
    judge: str | None = None
    """The policy that gives the opinion term of the reward `stanford`; the term fades out once candidates are correct.
    Its initial weight is the reward's `judge_weight`."""

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
    """The rollouts to collect after the warm-up."""

    rollouts: int = Field(default=4, ge=1, le=MOST_ROLLOUTS)
    """Rollouts of each task."""
    turns: int = Field(default=4, ge=1, le=10_000)
    context: Literal["recent", "top_w", "summary"] = "recent"
    temperature: float = Field(default=1.0, gt=0, le=1_000)
    limit: int | None = Field(default=None, ge=1, le=MOST)
    """Use only so many tasks, the first ones."""


class RejectionSettings(RlTable):
    """After the warm-up: collect rollouts, keep the successful ones, fine-tune on their answers (CUDA Agent)."""

    collect: CollectSettings = CollectSettings()
    reward: str = "cuda_agent"
    """The reward that selects rollouts: the best turn must get more than 0, without loops and unreadable answers."""
    loss: LossSettings = LossSettings()
    length: int = Field(default=4096, ge=8, le=MOST)
    """The most tokens of prompt and answer together."""
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
    """Set for rejection fine-tuning; the other tables then describe its warm-up."""

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
    """Raises `ConfigError` for reward settings that would fail later, or silently reward less than they say."""
    from kernelwright.evaluation.options import EvalOptions
    from kernelwright.records import Environment, Evaluation, Timing, WorkloadResult
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
    if timed:  # without timing no evaluation of this run has times, and a reward that needs them pays nothing
        eager, compiled = "eager" in timed, bool({"compile", "max-autotune"} & set(timed))
        timing = Timing(candidate_ms=1.0, eager_ms=2.0 if eager else None, compile_ms=1.5 if compiled else None)
        judged.append(right.changed(timing=timing, environment=Environment(own_kernel_share=0.5)))

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
    """Returns the initial weight of the judge's opinion."""
    from kernelwright.rewards.functions import load_reward

    default = _keywords(load_reward(settings.reward.name))["judge_weight"].default
    return float(settings.reward.parameters.get("judge_weight", default))


def _check_advantage(advantage: NamedSettings) -> None:
    from kernelwright.training.rl.advantages import load_advantage

    estimate = load_advantage(advantage.name)
    _check_parameters(estimate, advantage)
    _check_finite(advantage, lambda: estimate([0.0, 1.0], [0, 0], [0, 1], [0, 0], None, **advantage.parameters))


def _check_finite(settings: NamedSettings, result: Callable[[], Iterable[float | None]]) -> None:
    """Raises `ConfigError` for parameters with which a table's function fails or gives non-finite numbers."""
    try:
        sound = all(value is None or math.isfinite(value) for value in result())
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ConfigError(f"{settings.name} fails with the parameters {settings.parameters}: {error}") from error
    if not sound:
        raise ConfigError(f"{settings.name} gives no finite number with the parameters {settings.parameters}")


def _check_parameters(function: Any, settings: NamedSettings, not_set: Sequence[str] = ()) -> None:
    """Raises `ConfigError` for unknown parameters and for values of a wrong type."""
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
