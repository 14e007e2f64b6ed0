"""More host wrappers with their expected results: tensor arithmetic, views, library calls, bindings, streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from wrappers import Wrapper, x_of

X = x_of(5, 8)
WEIGHTS = [x_of(4, 3, 3, 3), x_of(4), x_of(6, 4 * 4 * 3), x_of(6)]


def _views(x: torch.Tensor) -> torch.Tensor:
    a = x[1:, ::2]
    out = torch.zeros(6)
    out[1], out[2] = x[1:, 0].sum(), x[0].mean()
    out[3:5] = x[:, [2, 0]].sum(0)
    out[5] = x.t().flatten().view(x.shape[1], -1)[1].sum() + x[..., -1].sum()
    assert torch.equal(a, x[1:, 0 : x.shape[1] : 2])
    return out


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = (((x + 2) * 2 - x) / 2 + 0.5 * x).mul(2).clamp(-5, 5)
    z = y + 0.25
    return -z + 1 - (z > 0).float() * 0.5


def _lists(m: Any) -> list[tuple[Any, Any]]:
    got = m.forward([x_of(7), x_of(2, 3)])
    both = torch.cat([x_of(7), x_of(2, 3).flatten()]) * 3
    sums = torch.stack([both[:3].sum(), both[3:].sum(), both[:7].sum()])
    return [(got[0], x_of(7) * 3), (got[1], x_of(2, 3) * 3), (got[2], sums)]


def _options(m: Any) -> list[tuple[Any, Any]]:
    x = x_of(2, 2)
    expected = [torch.arange(5), torch.full((2, 2), 1.5), torch.ones(3).double(), torch.zeros(2, dtype=torch.int32)]
    expected += [torch.tensor([0.0, 2, 4]), torch.ones(2, 3), torch.full((2, 2), 2, dtype=torch.int32)]
    expected += [torch.eye(2) + torch.tensor([0.0, 1.0])]
    got = m.forward(x)
    assert got[5].stride() == (1, 2)
    return list(zip(got, expected, strict=True))


def _masks(x: torch.Tensor) -> torch.Tensor:
    mask = (x > 0) & (x <= 1) | (x == 0)
    y = torch.where(mask, x, 0 * x) * 2
    top, at = y.flatten().topk(2)
    ordered, order = x.flatten().sort(descending=True)
    picked = x[mask].sum().view(1)
    return torch.cat([y.flatten(), picked, top, at.float(), ordered[:2], order[:1].float(), x.amax(1)])


def _around(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = F.relu(x @ w)
    h = h.softmax(-1) * 3
    h = F.gelu(h, approximate="tanh") + F.gelu(h) + h.sigmoid() * h.tanh() ** 2 + F.silu(h)
    h = F.layer_norm(h, (h.shape[1],)) + h.clamp(0, 1) + F.leaky_relu(h, 0.2)
    y = h * 0.5 + (h * h).sum(1, keepdim=True) + h.mean() + h.sum(1, keepdim=True) + h.max()
    y = y + h.std(1, unbiased=False, keepdim=True) + (h.var(1, keepdim=True) + 1e-5).rsqrt()
    return y + h.norm(dim=1, keepdim=True) + h.argmax(1, keepdim=True) + h.norm()


def _batched(m: Any) -> list[tuple[Any, Any]]:
    a, b = x_of(3, 4, 5), x_of(3, 6, 5)
    c, ch, v = m.forward(a, b)
    vector = a[0] @ b.flatten()[:5]
    half = (a[0].half().float() @ b[0].half().float().t()).half()
    return [(c, a @ b.transpose(1, 2)), (ch.float(), half.float()), (v, vector / vector.norm())]


def _lt(m: Any) -> list[tuple[Any, Any]]:
    """Tests epilogues by their number in cublasLt.h in three precisions; row-major batches; layouts that do not fit."""
    epilogues: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {
        1: lambda y: y,
        2: torch.relu,
        32: lambda y: F.gelu(y, approximate="tanh"),
    }
    found = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, w, bias = (t.to(dtype) for t in (x_of(5, 7), x_of(6, 7) - 0.5, x_of(6) - 0.5))
        plain = x.float() @ w.float().t()
        for number, after in epilogues.items():
            found.append((m.linear(x, w, bias, number).float(), after(plain).to(dtype).float()))
            biased = after(plain + bias.float()).to(dtype).float()
            found.append((m.linear(x, w, bias, (number & ~1) | 4).float(), biased))
    a, b, y = x_of(2, 3, 4), x_of(2, 4, 5), x_of(2, 3, 5)
    return [*found, (m.batched(a, b, y.clone()), a @ b + y / 2), (m.refused(x_of(4, 4)), 7)]


def _bindings(m: Any) -> list[tuple[Any, Any]]:
    x, out = x_of(20), torch.zeros(20)
    m.into(x, out)
    named = m.named(x)
    return [
        (m.scaled(x), x * 2),
        (m.scaled(s=4.0, x=x), x * 4),
        (m.answer(), 42),
        (m.greet(), "abab"),
        (m.greet("c", times=3), "ccc"),
        (m.pair_of(x)[0], x * 2),
        (m.pair_of(x)[1], "two"),
        (named["double"], x * 2),
        (sorted(named), ["double", "half"]),
        (m.maybe(x, False), None),
        (m.maybe(x, True), x),
        (out, x * 3),
        (m.quarter(x), x / 4),
        (m.VERSION, "1.0"),
        (m.WIDTH, 32),
    ]


def _many_arguments(m: Any) -> list[tuple[Any, Any]]:
    x = x_of(12)
    args = (x, [3, 4], 2, 0.5, torch.float32, torch.device("cuda"), (True, False), (2, 0.25), "neg", 3)
    none = (x, [12], 2.5, None, torch.float32, torch.device("cuda:0"), [False, False], [2, 0.25], "pos", 1)
    return [(m.forward(*args), -(x.view(3, 4) * 2 + 0.5 + 0.5) * 3), (m.forward(*none), x * 2.5)]


def _checks(m: Any) -> list[tuple[Any, Any]]:
    x = x_of(6)
    texts = []
    for bad in (x.double(), x_of(4, 6).t(), x_of(2, 3)):
        try:
            m.forward(bad)
            texts.append("")
        except RuntimeError as error:
            texts.append(str(error))
    assert "must be float32, not double" in texts[0] and "must be contiguous" in texts[1] and texts[2]
    return [(m.forward(x), x)]


def _attention(m: Any) -> list[tuple[Any, Any]]:
    q, k, v = x_of(2, 2, 5, 8), x_of(2, 2, 5, 8) * 0.5, x_of(2, 2, 5, 8) + 1
    return [(m.forward(q, k, v), F.scaled_dot_product_attention(q, k, v))]


def _network(m: Any) -> list[tuple[Any, Any]]:
    x = x_of(2, 3, 8, 6)
    h = F.max_pool2d(F.relu(F.conv2d(x, WEIGHTS[0], WEIGHTS[1], padding=1)), 2)
    return [(m.forward(x, WEIGHTS), F.linear(h.flatten(1), WEIGHTS[2], WEIGHTS[3]))]


def _norm(m: Any) -> list[tuple[Any, Any]]:
    x, g, b = x_of(4, 90), x_of(90), x_of(90) * 2
    plain = m.forward(x)
    return [
        (plain[0], F.layer_norm(x, (90,))),
        (plain[1], x.mean(1)),
        (m.forward(x, g, bias=b, eps=1e-3)[0], F.layer_norm(x, (90,), g, b, 1e-3)),
    ]


def _halves(x: torch.Tensor) -> list[torch.Tensor]:
    return [(x.half() + x.half()).float(), x * 1.5]


MORE = [
    Wrapper(
        "fused_linear_relu", lambda m: [(m.forward(X, x_of(3, 8), x_of(3)), F.relu(F.linear(X, x_of(3, 8), x_of(3))))]
    ),
    Wrapper(
        "conv_then_kernel",
        lambda m: [
            (
                m.forward(x_of(2, 3, 6, 6), WEIGHTS[0], WEIGHTS[1], pad=1),
                F.silu(F.conv2d(x_of(2, 3, 6, 6), WEIGHTS[0], WEIGHTS[1], padding=1)).mean((2, 3)),
            )
        ],
    ),
    Wrapper("views_and_indexing", lambda m: [(m.forward(X), _views(X))]),
    Wrapper("lists_of_tensors", _lists),
    Wrapper("in_place_and_fill", lambda m: [(m.forward(x_of(100)), _in_place(x_of(100)))]),
    Wrapper(
        "casts_and_items",
        lambda m: [
            (m.forward(x_of(9))[0], (x_of(9).half() * 2).float()),
            (m.forward(x_of(9))[2:], (int(x_of(9).argmax()), False)),
        ],
    ),
    Wrapper("options_chains", _options),
    Wrapper("host_accessor_of_cpu_tensor", lambda m: [(m.forward(X), X / X.max())]),
    Wrapper(
        "packed_accessor_kinds",
        lambda m: [(torch.stack(m.forward(X.t())), torch.stack([X.sum(0), X.sum(0) ** 2]))],
    ),
    Wrapper(
        "dispatch_switch_and_case",
        lambda m: [(m.forward(x_of(9)), -x_of(9)), (m.forward(torch.arange(9).int()), -torch.arange(9).int())],
    ),
    Wrapper(
        "dispatch_and2_bf16",
        lambda m: [
            (m.forward(x_of(9).to(d)).float(), (x_of(9).to(d).float() ** 2).to(d).float())
            for d in (torch.float32, torch.half, torch.bfloat16)
        ],
    ),
    Wrapper(
        "dispatch_v2",
        lambda m: [(m.forward(x_of(9)), x_of(9) + 1), (m.forward(torch.arange(9)), torch.arange(9) + 1)],
    ),
    Wrapper("accumulate_types", lambda m: [(m.forward(x_of(300)), x_of(300).sum().view(1))]),
    Wrapper(
        "atomics_of_torch",
        lambda m: [
            (
                m.forward(torch.arange(90) % 4, torch.ones(90), 5),
                torch.bincount(torch.arange(90) % 4, minlength=5).float(),
            )
        ],
    ),
    Wrapper("guards_streams_events", lambda m: [(m.forward(x_of(100)), x_of(100) * 2)]),
    Wrapper(
        "cublas_sgemm_current_handle",
        lambda m: [(m.forward(x_of(4, 5), x_of(5, 6)), 2 * x_of(4, 5) @ x_of(5, 6))],
        library=("cublasSgemm",),
    ),
    Wrapper(
        "cublas_own_handle_batched", _batched, library=("cublasSgemmStridedBatched", "cublasGemmEx", "cublasSgemv")
    ),
    Wrapper("cublas_lt_epilogues", _lt, library=("cublasLtMatmul",)),
    Wrapper("cublas_wrong_leading_dimension", lambda m: [(m.forward(x_of(4, 4)), 7)]),
    Wrapper(
        "symbols_of_all_kinds",
        lambda m: [
            (
                m.forward(x_of(40))[0],
                F.conv1d(x_of(40).view(1, 1, -1), torch.tensor([[[0.25, 0.5, 0.25]]]), padding=1).flatten(),
            ),
            (m.forward(x_of(40))[1], 40),
        ],
    ),
    Wrapper("async_allocations", lambda m: [(m.forward(x_of(200)), x_of(200) * 5 + 1)]),
    Wrapper("anonymous_namespace_and_helpers", lambda m: [(m.forward(x_of(200)), (x_of(200) ** 2 + 1) / 2)]),
    Wrapper(
        "launches_in_odd_places",
        lambda m: [
            (m.forward(x_of(33), True), torch.full((33,), 24.0)),
            (m.forward(x_of(32), False), torch.full((32,), 10.0)),
        ],
    ),
    Wrapper("attributes_occupancy_and_launch_kernel", lambda m: [(m.forward(x_of(1000)), x_of(1000).flip(0))]),
    Wrapper("binding_styles", _bindings),
    Wrapper("argument_types", _many_arguments),
    Wrapper("network_of_several_kernels", _network),
    Wrapper("attention_with_bmm", _attention, library=("bmm",)),
    Wrapper("layer_norm_with_statistics", _norm),
    Wrapper("static_cache_and_mutex", lambda m: [(m.forward(x_of(50)), x_of(50) * 7)]),
    Wrapper("comparisons_and_masks", lambda m: [(m.forward(x_of(6, 7)), _masks(x_of(6, 7)))]),
    Wrapper(
        "torch_functions_around", lambda m: [(m.forward(X, x_of(8, 6)), _around(X, x_of(8, 6)))], library=("addmm",)
    ),
    Wrapper(
        "half_and_vector_types",
        lambda m: [(a.float(), b) for a, b in zip(m.forward(x_of(64)), _halves(x_of(64)), strict=True)],
    ),
    Wrapper(
        "structs_on_the_host",
        lambda m: [(m.forward(x_of(90), 0), x_of(90) * 3), (m.forward(x_of(90), 1), x_of(90) * 9)],
    ),
    Wrapper("several_std_headers", lambda m: [(m.forward(x_of(90)), x_of(90) * 6 + 1)]),
    Wrapper("file_scope_using", lambda m: [(m.forward(x_of(30)), torch.stack([x_of(30), x_of(30) * 2]))]),
    Wrapper("checks_that_fail", _checks),
    Wrapper(
        "out_variants",
        lambda m: [
            (
                m.forward(x_of(4, 5), x_of(5, 6)),
                2 * (p := x_of(4, 5) @ x_of(5, 6)) + p.amax(1, True) + p.argmax(1, True),
            )
        ],
        library=("mm", "matmul"),
    ),
]


def _library(m: Any) -> list[tuple[Any, Any]]:
    """Tests operators under torch.ops: by schema and by inference, with defaults, keywords, lists, optional tensors."""
    ops, x = torch.ops.kw_wrapper_test, x_of(6, 5)
    found = [(m.forward(x), x * 3), (ops.scaled(x, 2.0), x * 2), (ops.scaled(x), x * 1.5)]
    found += [(ops.scaled(x, shift=0.5, factor=2.0), x * 2 + 0.5), (ops.plain(x, 4), x * 4)]
    found += [(ops.both([x, x + 1], None), [x * 2, (x + 1) * 2]), (ops.both([x], x), [x * 3])]
    total, largest = ops.sums.pair(x)
    found += [(total, x.sum()), (largest, x.amax()), (ops.sums(x), x.sum()), (ops.count(x), 30)]
    ops.double_(y := x.clone())
    found.append((y, x * 2))
    schema = str(ops.plain.default._schema)
    found.append((schema, "kw_wrapper_test::plain(Tensor _0, int _1) -> Tensor"))
    flat = [pair for got, want in found if isinstance(got, list) for pair in zip(got, want, strict=True)]
    return flat + [pair for pair in found if not isinstance(pair[0], list)]


MORE += [Wrapper("torch_library", check=_library, library=("sum", "amax"))]

REFUSED = {
    "refused_cub_in_host_code": ("unsupported", "cub::DeviceReduce"),
    "refused_thrust": ("unsupported", "thrust"),
    "refused_cudnn": ("unsupported", "cudnnReduceTensorDescriptor_t"),
    "refused_curand_host": ("unsupported", "curand.h"),
    "refused_cublaslt": ("unsupported", "cublasLtMatrixTransform"),
    "refused_cuda_graph": ("unsupported", "cudaGraph"),
    "refused_nn_module": ("unsupported", "torch::nn::Linear"),
    "refused_type_of_an_operator": ("compile_error", "unsupported input or output type"),
    "refused_class_of_an_operator": ("unsupported", "class_"),
    "refused_native_helpers": ("unsupported", "at::native"),
    "refused_python_habits": ("compile_error", "shape"),
    "refused_made_up_function": ("compile_error", "fused_relu"),
    "refused_view_without_braces": ("compile_error", "no matching function"),
    "refused_half_atomic": ("compile_error", "atomicAdd"),
    "refused_shared_of_two_types": ("compile_error", "incompatible"),
    "refused_type_for_dispatch": ("compile_error", "deleted function"),
    "refused_old_header": ("compile_error", "THC/THC.h"),
    "refused_missing_return_type": ("compile_error", "error"),
    "refused_tuple_as_tensor": ("compile_error", "error"),
}
"""What each must end as, and a word of the missing names or of the log."""
