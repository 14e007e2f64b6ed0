"""Host wrappers around cuDNN: each routine against torch's own operator, and the statuses of wrong parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from wrappers import Wrapper, x_of

BAD_PARAM, NOT_SUPPORTED = 2000, 3000
Pairs = list[tuple[Any, Any]]


def _convolutions(m: Any) -> Pairs:
    x, w = x_of(2, 4, 7, 6) - 0.5, x_of(6, 4, 3, 3) - 0.3
    found: Pairs = []
    for pad, stride, dilation, groups in ((0, 1, 1, 1), (1, 2, 1, 1), (2, 1, 2, 2), (1, 1, 1, 2)):
        weight = w[:, : 4 // groups].contiguous()
        plain = F.conv2d(x, weight, None, stride, pad, dilation, groups)
        found.append((m.conv2d(x, weight, pad, stride, dilation, groups, 1.0, 0.0, False), plain))
        turned = F.conv2d(x, weight.flip(2, 3), None, stride, pad, dilation, groups)
        found.append((m.conv2d(x, weight, pad, stride, dilation, groups, 0.5, 2.0, True), turned / 2 + 2))
    half = F.conv2d(x.half().float(), w.half().float()).half()
    found.append((m.conv2d(x.half(), w.half(), 0, 1, 1, 1, 1.0, 0.0, False).float(), half.float()))
    found.append((m.conv2d(x.double(), w.double(), 0, 1, 1, 1, 2.0, 0.0, False), 2 * F.conv2d(x.double(), w.double())))
    bias, z = x_of(6) - 0.5, x_of(2, 6, 7, 6) - 1
    found.append((m.fused(x, w, bias, z), 2 * F.relu(F.conv2d(x, w, bias, padding=1) + z / 2)))
    for pad, stride, more in ((0, 1, 0), (1, 2, 1)):
        grown = F.conv_transpose2d(z, w, None, stride, pad, more)
        found.append((m.transposed(z, w, pad, stride, more), 2 * grown + 0.5))
    deep, window = x_of(1, 2, 5, 4, 6), x_of(3, 2, 2, 3, 2)
    expected = F.conv3d(deep, window, None, (1, 2, 1), (1, 1, 0))
    return [*found, (m.conv3d(deep, window, [1, 1, 0], [1, 2, 1]), expected)]


def _activations(m: Any) -> Pairs:
    x = x_of(2, 3, 4, 5) - 0.5
    expected = {
        0: torch.sigmoid(x),
        1: torch.relu(x),
        2: torch.tanh(x),
        3: x.clamp(0, 0.3),
        4: F.elu(x, 0.3),
        6: F.silu(x),
    }
    found: Pairs = [(m.activation(x, x + 1, k, 0.3), 3 * y + (x + 1) / 4) for k, y in expected.items()]
    rows = torch.ones(2, 3, 4, 8)[..., :5]
    found.append((m.activation(x, rows, 1, 0.0), 3 * torch.relu(x) + 0.25))
    half = (3 * torch.relu(x.half().float()) + 0.25).half()
    return [*found, (m.activation(x.half(), torch.ones(2, 3, 4, 5).half(), 1, 0.0).float(), half.float())]


def _batch_norm_training(m: Any, x: torch.Tensor) -> Pairs:
    scale, bias = x_of(1, 3, 1, 1), x_of(1, 3, 1, 1) + 1
    ours, theirs, saved = (torch.zeros(3), torch.ones(3)), (torch.zeros(3), torch.ones(3)), torch.zeros(2, 3)
    expected = F.batch_norm(x, *theirs, scale.flatten(), bias.flatten(), training=True, momentum=0.1, eps=1e-3)
    found = [(m.batch_norm_training(x, scale, bias, *ours, saved), 3 * expected + 0.25), (ours[0], theirs[0])]
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    return [*found, (ours[1], theirs[1]), (saved, torch.stack([mean, (variance + 1e-3).rsqrt()]))]


def _layers(m: Any) -> Pairs:
    x = x_of(2, 3, 6, 5) - 0.5
    window, pad, step = (3, 2), (1, 0), (2, 1)
    args = (*window, *pad, *step)
    averages = [F.avg_pool2d(x, window, step, pad, count_include_pad=kept) for kept in (True, False)]
    pools = [F.max_pool2d(x, window, step, pad), *averages]
    found = [*_activations(m), *((m.pooling(x, k, *args), 3 * y + 0.25) for k, y in enumerate(pools))]
    flat = x.flatten(1)
    for algorithm, (by_channel, by_image) in enumerate(
        [(x.softmax(1), flat.softmax(1)), (x.softmax(1), flat.softmax(1)), (x.log_softmax(1), flat.log_softmax(1))]
    ):
        found.append((m.softmax(x, algorithm, 1), 3 * by_channel + 0.25))
        found.append((m.softmax(x, algorithm, 0), 3 * by_image.view(x.shape) + 0.25))
    for mode, shape in ((0, (1, 3, 6, 5)), (1, (1, 3, 1, 1))):
        scale, bias, mean, variance = (x_of(*shape) + k for k in range(4))
        expected = (x - mean) / (variance + 1e-3).sqrt() * scale + bias
        found.append((m.batch_norm(x, scale, bias, mean, variance, mode), 3 * expected + 0.25))
    found += _batch_norm_training(m, x)
    found.append((m.add(x_of(1, 3, 1, 1), torch.ones(2, 3, 6, 5)), (3 * x_of(1, 3, 1, 1) + 0.25).expand(2, 3, 6, 5)))
    a, b = x, x_of(1, 3, 1, 5) - 0.4
    ways = [3 * a + 2 * b, 6 * a * b, torch.minimum(3 * a, 2 * b), torch.maximum(3 * a, 2 * b)]
    found += [(m.op(a, b, k), y + 0.25) for k, y in enumerate(ways)]
    return [*found, (m.op(a.abs(), b, 4), (3 * a.abs()).sqrt() + 0.25), (m.op(a, b, 5), 1 - 3 * a + 0.25)]


def _refusals(m: Any) -> Pairs:
    x, w, y = x_of(1, 2, 5, 5), x_of(4, 2, 3, 3), torch.zeros(1, 4, 3, 3)
    bad = ("channels", "output", "unset filter", "filter type", "groups", "handle", "alpha")
    found: Pairs = [(m.convolve(x, w, y, wrong), BAD_PARAM) for wrong in bad]
    found += [(m.convolve(x, w, y, wrong), NOT_SUPPORTED) for wrong in ("compute type", "algorithm")]
    assert not y.any(), "a call that was refused wrote its result"
    found += [(m.convolve(x, w, y, ""), 0), (y, F.conv2d(x, w))]
    with pytest.raises(RuntimeError, match="illegal memory access"):
        m.convolve(x, w, torch.zeros(1), "")
    settings = [BAD_PARAM, BAD_PARAM, NOT_SUPPORTED, NOT_SUPPORTED, *[BAD_PARAM] * 7, 0]
    return [*found, (m.settings(x_of(16)), settings)]


CUDNN = [
    Wrapper(
        "cudnn_convolutions",
        _convolutions,
        library=("cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData"),
    ),
    Wrapper(
        "cudnn_layers",
        _layers,
        library=(
            "cudnnActivationForward",
            "cudnnPoolingForward",
            "cudnnSoftmaxForward",
            "cudnnBatchNormalizationForwardInference",
            "cudnnBatchNormalizationForwardTraining",
            "cudnnAddTensor",
            "cudnnOpTensor",
        ),
    ),
    Wrapper("cudnn_refusals", _refusals, library=("cudnnConvolutionForward",)),
]
