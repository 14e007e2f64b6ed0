"""Executes cuDNN calls of compiled host code by torch, on the caller's addresses.

`host_more/cudnn_calls.h` has checked every descriptor, so each call has a defined result, `alpha * f(x) + beta * y`,
in the NCHW order of cuDNN's documentation. Half precision computes in float32. float32 stays float32, whereas a GPU
may round a convolution's inputs to TF32 unless its math type is CUDNN_FMA_MATH.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.grad import conv2d_input, conv3d_input

from kernelwright.backends import values
from kernelwright.backends.libraries.library_memory import Memory, wide

SUCCESS = 0
Choices = Sequence[int]
Factors = Sequence[float]


def _tensor(packed: Sequence[int], memory: Memory) -> torch.Tensor:
    """Returns a tensor from: address, c10::ScalarType, sizes, strides."""
    address, number, *numbers = packed
    rank = len(numbers) // 2
    dtype = values.DTYPES[number]
    assert dtype is not None
    return memory(address, numbers[:rank], numbers[rank:], dtype)


def _convolved(x: torch.Tensor, w: torch.Tensor, choices: Choices) -> torch.Tensor:
    """Computes a convolution; `choices`: mode (0 flips), groups, then padding, stride, dilation per dimension."""
    mode, groups, *numbers = choices
    rank = len(numbers) // 3
    pad, stride, dilation = numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank :]
    filters = wide(w).flip(tuple(range(2, 2 + rank))) if mode == 0 else wide(w)
    run = F.conv2d if rank == 2 else F.conv3d
    return run(wide(x), filters, None, stride, pad, dilation, groups)


def _convolution(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    x, w, _ = tensors
    return _convolved(x, w, choices) * factors[0]


def _backward_data(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Computes the gradient of a convolution's input, with the result's sizes: a transposed convolution."""
    dy, w, dx = tensors
    mode, groups, *numbers = choices
    rank = len(numbers) // 3
    pad, stride, dilation = numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank :]
    filters = wide(w).flip(tuple(range(2, 2 + rank))) if mode == 0 else wide(w)
    run = conv2d_input if rank == 2 else conv3d_input
    return run(dx.shape, filters, wide(dy), stride, pad, dilation, groups) * factors[0]


def _convolution_bias_activation(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Computes `relu(alpha * conv(x) + beta * z + bias)`, or without relu; `factors[1]` scales z, not y."""
    x, w, z, bias, _ = tensors
    made = _convolved(x, w, choices[1:]) * factors[0] + wide(bias)
    made = made if factors[1] == 0 else made + wide(z) * factors[1]
    return torch.where(made > 0, made, 0) if choices[0] == 1 else made


def _activation(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Applies a mode of cudnnActivationMode_t; without NaN propagation NaN is treated as 0."""
    x = wide(tensors[0])
    mode, keeps_nan = choices
    alpha, _, coefficient, beta = factors
    kept = x if keeps_nan or mode not in (1, 3) else torch.nan_to_num(x, nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    functions: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {
        0: torch.sigmoid,
        1: torch.relu,
        2: torch.tanh,
        3: lambda v: v.clamp(0.0, coefficient),
        4: lambda v: F.elu(v, coefficient),
        6: lambda v: v * torch.sigmoid(beta * v),
    }
    return functions[mode](kept) * alpha


def _pooling(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Computes pooling; `choices`: mode, NaN propagation, then window, padding and stride per dimension."""
    x = wide(tensors[0])
    mode, keeps_nan, *numbers = choices
    rank = len(numbers) // 3
    window, pad, stride = numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank :]
    around = [p for side in reversed(pad) for p in (side, side)]
    if mode in (0, 3):
        seen = x if keeps_nan else torch.where(x.isnan(), -torch.inf, x)
        largest = F.max_pool2d if rank == 2 else F.max_pool3d
        return largest(F.pad(seen, around, value=-torch.inf), window, stride) * factors[0]
    average = F.avg_pool2d if rank == 2 else F.avg_pool3d
    made = average(F.pad(x, around), window, stride)
    if mode == 2:
        made = made / average(F.pad(torch.ones_like(x[:1, :1]), around), window, stride)
    return made * factors[0]


def _softmax(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Computes softmax over channels or a whole image; the fast algorithm skips the maximum and can overflow."""
    x = wide(tensors[0])
    algorithm, by_channel = choices
    flat = x if by_channel else x.flatten(1)
    if algorithm == 0:
        powers = flat.exp()
        made = powers / powers.sum(1, keepdim=True)
    else:
        made = flat.softmax(1) if algorithm == 1 else flat.log_softmax(1)
    return made.view(x.shape) * factors[0]


def _batch_norm(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    x, scale, bias, mean, variance, _ = tensors
    return ((wide(x) - mean) * torch.rsqrt(variance + factors[2]) * scale + bias) * factors[0]


def _batch_norm_training(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Normalises by the batch's statistics; `choices`: whether to update running statistics, and whether to save them.

    As in cuDNN the running variance takes the unbiased one, and the inverse deviation is what is saved.
    """
    x, scale, bias, *statistics = tensors[:-1]
    alpha, _, epsilon, momentum = factors
    over = [i for i, kept in enumerate(scale.shape) if kept == 1]
    variance, mean = torch.var_mean(wide(x), over, correction=0, keepdim=True)
    count = x.numel() // mean.numel()
    inverse = torch.rsqrt(variance + epsilon)
    if choices[0]:
        running_mean, running_variance, *statistics = statistics
        running_mean.lerp_(mean, momentum)
        running_variance.lerp_(variance * (count / max(1, count - 1)), momentum)
    if choices[1]:
        statistics[0].copy_(mean)
        statistics[1].copy_(inverse)
    return ((wide(x) - mean) * inverse * scale + bias) * alpha


def _add(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    return wide(tensors[0]) * factors[0]


def _op(tensors: Sequence[torch.Tensor], choices: Choices, factors: Factors) -> torch.Tensor:
    """Operations by the numbers of cudnnOpTensorOp_t."""
    a, b = wide(tensors[0]) * factors[0], wide(tensors[1]) * factors[2]
    least, most = (torch.minimum, torch.maximum) if choices[1] else (torch.fmin, torch.fmax)
    functions: dict[int, Callable[[], torch.Tensor]] = {
        0: lambda: a + b,
        1: lambda: a * b,
        2: lambda: least(a, b),
        3: lambda: most(a, b),
        4: a.sqrt,
        5: lambda: 1 - a,
    }
    return functions[choices[0]]()


_ROUTINES: dict[str, Callable[[Sequence[torch.Tensor], Choices, Factors], torch.Tensor]] = {
    "cudnnConvolutionForward": _convolution,
    "cudnnConvolutionBiasActivationForward": _convolution_bias_activation,
    "cudnnConvolutionBackwardData": _backward_data,
    "cudnnActivationForward": _activation,
    "cudnnPoolingForward": _pooling,
    "cudnnSoftmaxForward": _softmax,
    "cudnnBatchNormalizationForwardInference": _batch_norm,
    "cudnnBatchNormalizationForwardTraining": _batch_norm_training,
    "cudnnAddTensor": _add,
    "cudnnOpTensor": _op,
}


def run(name: str, args: Sequence[Any], memory: Memory) -> tuple[int, int]:
    """Executes a routine by its cuDNN name; returns its status and the count of elements that it wrote.

    `args`: the routine's choices and factors, then its tensors, the result last (`host_more/cudnn_calls.h`).
    Raises RuntimeError for addresses that are not the device's.
    """
    choices, factors, *packed = args
    tensors = [_tensor(numbers, memory) for numbers in packed]
    target = tensors[-1]
    with torch.no_grad():
        made = _ROUTINES[name](tensors, choices, factors)
        keeps = name != "cudnnConvolutionBiasActivationForward" and factors[1] != 0
        target.copy_(made + wide(target) * factors[1] if keeps else made)
    return SUCCESS, target.numel()
