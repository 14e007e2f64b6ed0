"""The messages to a policy: the first request, and feedback on each candidate."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.evaluation.judge import counter_lines
from kernelwright.records import Candidate, Evaluation, Message, Precision, Task, Turn
from kernelwright.tasks.reference import wants_gradients
from kernelwright.untrusted import fenced, line, own_frames, without_marks

_SYSTEM = (
    "You write CUDA kernels for PyTorch. You answer with one complete Python file in one ```python block and nothing "
    "after it. The file must be correct for every input size that the reference accepts."
)

_EXAMPLE_TASK = """\
class Model(nn.Module):
    def forward(self, x, scale):
        return torch.clamp(x, min=0) * scale
"""

_EXAMPLE = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void clamp_scale(const float* __restrict__ x, const float* __restrict__ scale,
                            float* __restrict__ out, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f) * scale[i % width];
}

torch::Tensor clamp_scale_forward(torch::Tensor x, torch::Tensor scale) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    clamp_scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), scale.data_ptr<float>(), out.data_ptr<float>(),
                                          n, (int)scale.numel());
    return out;
}
"""

extension = load_inline(
    name="clamp_scale",
    cpp_sources="torch::Tensor clamp_scale_forward(torch::Tensor x, torch::Tensor scale);",
    cuda_sources=cuda_source,
    functions=["clamp_scale_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x, scale):
        return extension.clamp_scale_forward(x.contiguous(), scale.contiguous())
'''

_FORMAT = """\
Write class ModelNew(nn.Module) with the constructor arguments of Model and the same parameters and buffers under the
same names; it gets Model's weights. Its forward takes the same inputs and returns the same outputs: same shapes and
dtypes. Build kernels with load_inline, as in the example; or, where no C++ is needed, with

    from kernelwright.cuda import Module
    module = Module(cuda_text)                       # extern "C" __global__ kernels
    module.my_kernel[grid, block](x, out, x.numel())  # tensors, ints, floats
"""

_RULES = {
    "from_scratch": (
        "All computing must happen in kernels of your own. torch may allocate, view, reshape and copy tensors, but not "
        "compute with them (no torch.matmul, no softmax, no sums). Do not change the inputs."
    ),
    "libraries": "You may use torch and its libraries where they are fastest. Do not change the inputs.",
}


_PRECISIONS: dict[Precision, str] = {
    "float32": (
        " Keep float32's accuracy: a product of float32 operands on tensor cores must split them into parts, since one "
        "product of TF32 or 16-bit operands is judged wrong."
    ),
    "tf32": (
        " Products of float32 operands (matrix products, convolutions, attention) may round the operands to TF32, as "
        "the reference does that you are timed against; everything else stays float32."
    ),
}


def _rule(task: Task) -> str:
    kind, _, names = task.policy.partition(":")
    text = _RULES[kind]
    if names:
        text = f"You may call these libraries where they are fastest: {names}. " + _RULES["from_scratch"]
    text += _PRECISIONS[task.precision]
    if wants_gradients(task.source):
        text += (
            " Gradients are checked too: forward must be differentiable by autograd (torch.autograd.Function with a "
            "backward of your own) with respect to its inputs and parameters."
        )
    return text


NOT_JUDGED = "Your answer could not be judged, for a reason that has nothing to do with it."
"""The whole feedback on a harness error: the error's text describes our fault and means nothing for the answer."""


def initial_messages(task: Task) -> tuple[Message, ...]:
    """Returns the request for a first candidate."""
    text = (
        f"Here is an example. For this reference\n\n```python\n{_EXAMPLE_TASK}```\n\nthis is a good answer:\n\n"
        f"```python\n{_EXAMPLE}```\n\n{_FORMAT}\n{_rule(task)}\n\n"
        f"Now write ModelNew for this reference:\n\n{fenced(task.source.strip(), 'python')}\n"
    )
    return (Message(role="system", content=_SYSTEM), Message(role="user", content=text))


def feedback(candidate: Candidate | None, evaluation: Evaluation | None, parse_failure: str | None) -> Message:
    """Returns the feedback on the last answer, with the next instruction."""
    if evaluation is not None and evaluation.verdict == "harness_error":
        return Message(role="user", content=f"{NOT_JUDGED} Write the whole file again, the same or a better one.")
    if evaluation is None or candidate is None:
        why = line(parse_failure or "")
        return Message(role="user", content=f"Your answer could not be used: {why}. Write the file again.")
    parts = [evaluation.reason] if evaluation.reason else []
    lines = candidate.text.splitlines()
    for finding in evaluation.findings[:5]:
        parts.append(f"- {finding.rule}: {finding.evidence}")
        if finding.line and 0 < finding.line <= len(lines):
            parts.append(f"    line {finding.line}: {lines[finding.line - 1].strip()}")
    for result in evaluation.workloads:
        shape = " ".join("x".join(map(str, s)) or "scalar" for s in result.shape)
        state = "right" if result.passed else f"wrong: {result.reason}"
        parts.append(f"- inputs {shape}, {result.distribution} values: {state}")
    if evaluation.verdict == "correct":
        parts += [f"- {line}" for line in counter_lines.advice(evaluation)]
    told = [f"Verdict: {evaluation.verdict}."]
    if parts:
        told.append(fenced("\n".join(_kept_indented(part) for part in parts)))
    if evaluation.verdict != "correct" and evaluation.log:
        told += ["Log:", fenced(own_frames(evaluation.log[-3000:]))]
    ask = "Make it faster." if evaluation.verdict == "correct" else "Find the mistake and write the whole file again."
    return Message(role="user", content="\n".join([*told, "", ask]))


def _kept_indented(text: str) -> str:
    """Returns one line of the report, whatever the quoted text holds."""
    return " " * (len(text) - len(text.lstrip(" "))) + line(text)


def conversation(
    task: Task, turns: Sequence[Turn], candidates: Sequence[Candidate | None], budget: int
) -> tuple[Message, ...]:
    """Returns the next turn's messages: the request, then as many of the latest answers as `budget` characters hold."""
    return continued(initial_messages(task), turns, candidates, budget)


def continued(
    first: tuple[Message, ...], turns: Sequence[Turn], candidates: Sequence[Candidate | None], budget: int
) -> tuple[Message, ...]:
    """Returns a request, then as many of the latest answers with their feedback as `budget` characters hold.

    The latest answer is kept even where it exceeds the budget.
    """
    left = budget - sum(len(m.content) for m in first)
    recent: list[Message] = []
    for turn, candidate in zip(reversed(turns), reversed(candidates), strict=True):
        pair = [
            Message(role="assistant", content=without_marks(turn.answer)),
            feedback(candidate, turn.evaluation, turn.parse_failure),
        ]
        size = sum(len(m.content) for m in pair)
        if recent and size > left:
            break
        left -= size
        recent = pair + recent
    return (*first, *recent)
