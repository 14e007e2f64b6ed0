"""Trains a policy to write CUDA kernels by reinforcement learning in one file, in under a minute on a CPU.

    python examples/rl_loop.py [STEPS]

A tiny recurrent policy fills in the holes of a kernel's text. `evaluate` judges each answer on the functional CUDA
machine. The verdict becomes a reward, and each turn gets an advantage; a second turn sees the verdict of the first. The
file has the parts of a real run in small, without a framework: tasks, prompts with feedback, sampling, judging,
rewards, advantages, the update.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Candidate, Evaluation, SourceFile, Task
from kernelwright.rewards import REWARDS
from kernelwright.training.rl.advantages import ADVANTAGES

# The tasks are in KernelBench's form. They differ in one line, which the policy does not see and must find by trial.
REFERENCE = """\
import torch
import torch.nn as nn

rows, cols = 37, 129


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""
TASKS = [
    Task(task_id="relu", source=REFERENCE.format("torch.relu(x)")),
    Task(task_id="square", source=REFERENCE.format("x * x")),
]

# A candidate is this file with one piece of text in each hole: 18 files for a task, few of them correct.
CANDIDATE = '''\
import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""
extern "C" __global__ void elementwise(const float* x, float* y, int n) {{
    int i = {index};
    {guard}y[i] = {expression};
}}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        kernels.elementwise[((n + 255) // 256, 1, 1), (256, 1, 1)](x, y, n)
        return y
'''
HOLES: dict[str, tuple[str, ...]] = {
    "index": ("blockIdx.x * 256 + threadIdx.x", "threadIdx.x"),
    "guard": ("", "if (i <= n) ", "if (i < n) "),
    "expression": ("fabsf(x[i])", "x[i] * x[i]", "fmaxf(x[i], 0.0f)"),
}
VERDICTS = (
    "",
    "correct",
    "wrong",
    "runtime_error",
    "compile_error",
    "rejected",
    "timeout",
    "unsupported",
    "harness_error",
)

ROLLOUTS, TURNS, LEARNING_RATE = 12, 2, 0.03


class Policy(nn.Module):
    """A recurrent net over holes. It sees the task, the last verdict and its last pieces, and chooses pieces."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.task = nn.Embedding(len(TASKS), width)
        self.verdict = nn.Embedding(len(VERDICTS), width)
        self.pieces = nn.ModuleList(nn.Embedding(len(p) + 1, width) for p in HOLES.values())
        self.cell = nn.GRUCell(width, width)
        self.heads = nn.ModuleList(nn.Linear(width, len(p)) for p in HOLES.values())
        for head in self.heads:  # start without a preference
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, prompt: Tensor, given: Tensor | None = None, greedy: bool = False) -> tuple[Tensor, Tensor]:
        """Returns pieces `(batch, holes)` and their log-probabilities: sampled, the likeliest, or the `given` pieces.

        `prompt` is `(batch, 2 + holes)`: task, last verdict, and the last turn's pieces (0: there was none).
        """
        seen = self.task(prompt[:, 0]) + self.verdict(prompt[:, 1])
        for hole, embedding in enumerate(self.pieces):
            seen = seen + embedding(prompt[:, 2 + hole])
        state = self.cell(seen)
        chosen, log_probs = [], []
        for hole, head in enumerate(self.heads):
            choices = torch.distributions.Categorical(logits=head(state))
            piece = choices.logits.argmax(-1) if greedy else choices.sample() if given is None else given[:, hole]
            chosen.append(piece)
            log_probs.append(choices.log_prob(piece))
            state = self.cell(self.pieces[hole](piece + 1), state)
        return torch.stack(chosen, 1), torch.stack(log_probs, 1)


@dataclass
class Batch:
    """Flat rows for the update, one a turn."""

    prompt: list[list[int]] = field(default_factory=list)
    pieces: list[list[int]] = field(default_factory=list)
    reward: list[float | None] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    trajectory: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)


class Judged:
    """A cache of verdicts by task and text."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.known: dict[tuple[str, str], Evaluation] = {}

    def __call__(self, task: Task, text: str) -> Evaluation:
        key = (task.content_hash, text)
        if key not in self.known:
            candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
            self.known[key] = self.evaluator.evaluate(task, candidate)
        return self.known[key]


def text_of(pieces: list[int]) -> str:
    """Returns the candidate's file: an answer's tokens as text."""
    words = {name: choices[piece] for (name, choices), piece in zip(HOLES.items(), pieces, strict=True)}
    return CANDIDATE.format(**words)


@torch.no_grad()
def rollouts(policy: Policy, judge: Judged) -> Batch:
    """Plays every task ROLLOUTS times, until a candidate is right or the turns are used up."""
    batch = Batch()
    reward = REWARDS["kevin"]  # 0.3 for a correct one, and its speedup if a GPU measures it
    playing = [(g, n, [g, 0] + [0] * len(HOLES)) for g in range(len(TASKS)) for n in range(ROLLOUTS)]
    for turn in range(TURNS):
        if not playing:
            break
        pieces, _ = policy(torch.tensor([prompt for _, _, prompt in playing]))
        following = []
        for (group, trajectory, prompt), chosen in zip(playing, pieces.tolist(), strict=True):
            evaluation = judge(TASKS[group], text_of(chosen))
            batch.prompt.append(prompt)
            batch.pieces.append(chosen)
            batch.reward.append(reward(evaluation).value)  # None for a fault of the harness
            batch.group.append(group)
            batch.trajectory.append(trajectory)
            batch.turn.append(turn)
            if evaluation.verdict != "correct":
                seen = [group, VERDICTS.index(evaluation.verdict), *(piece + 1 for piece in chosen)]
                following.append((group, trajectory, seen))
        playing = following
    return batch


BY_TURN = {"gamma": 0.4, "single": "zero_baseline"}


def credit(batch: Batch, name: str = "trloo", parameters: dict[str, object] = BY_TURN) -> Tensor:
    """Returns each turn's advantage: by default its return minus that of the other rollouts' same turn."""
    found = ADVANTAGES[name](batch.reward, batch.group, batch.trajectory, batch.turn, None, **parameters)
    return torch.tensor(found, dtype=torch.float32)


def update(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, advantage: Tensor) -> float:
    """Takes one step up the policy gradient; returns its loss."""
    _, log_probs = policy(torch.tensor(batch.prompt), torch.tensor(batch.pieces))
    loss = -(advantage[:, None] * log_probs).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main(steps: int = 40) -> list[float]:
    """Trains and prints a line a step; returns the mean reward of first turns by step."""
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    curve: list[float] = []
    started = time.perf_counter()
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=0)) as evaluator:
        judge = Judged(evaluator)
        for step in range(steps):
            batch = rollouts(policy, judge)
            loss = update(policy, optimizer, batch, credit(batch))
            first = [r or 0.0 for r, turn in zip(batch.reward, batch.turn, strict=True) if turn == 0]
            solved = {(g, n) for g, n, r in zip(batch.group, batch.trajectory, batch.reward, strict=True) if r}
            curve.append(sum(first) / len(first))
            if step % 5 == 0 or step == steps - 1:
                share = len(solved) / (len(TASKS) * ROLLOUTS)
                print(
                    f"step {step:3}  reward of first turns {curve[-1]:.3f}  right within {TURNS} turns {share:4.0%}  "
                    f"loss {loss:+.4f}  candidates judged {len(judge.known)}  {time.perf_counter() - started:.0f} s"
                )
        with torch.no_grad():
            prompts = torch.tensor([[g, 0] + [0] * len(HOLES) for g in range(len(TASKS))])
            pieces, _ = policy(prompts, greedy=True)
        for task, chosen in zip(TASKS, pieces.tolist(), strict=True):
            evaluation = judge(task, text_of(chosen))
            kernel = text_of(chosen).split('r"""')[1].split('"""')[0].strip()
            print(f"\n{task.task_id}: {evaluation.verdict}\n{kernel}")
    return curve


if __name__ == "__main__":
    given = sys.argv[1:]
    if given in (["-h"], ["--help"]):
        print("usage: python examples/rl_loop.py [STEPS]; STEPS: at least 1, 40 by default")
    elif len(given) > 1 or not all(word.isdecimal() and len(word) < 7 and int(word) for word in given):
        print(f"error: {' '.join(given)!r} is no number of steps; usage: rl_loop.py [STEPS]", file=sys.stderr)
        sys.exit(2)
    else:
        main(*map(int, given))
