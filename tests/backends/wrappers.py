"""Host wrappers in the styles of people and models, with their expected results.

The sources are `wrapper_sources/NAME.cu` (and `NAME.cpp` where load_inline is given C++ sources too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

FOLDER = Path(__file__).parent / "wrapper_sources"
Check = Callable[[Any], list[tuple[Any, Any]]]


@dataclass(frozen=True)
class Wrapper:
    """A sample wrapper. `check(module)` gives pairs of (actual, expected)."""

    name: str
    check: Check
    functions: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    """Library calls that must have been recorded."""

    @property
    def cuda(self) -> str:
        return (FOLDER / f"{self.name}.cu").read_text()

    @property
    def cpp(self) -> str:
        path = FOLDER / f"{self.name}.cpp"
        return path.read_text() if path.exists() else ""


def x_of(*shape: int) -> torch.Tensor:
    """Returns the same numbers for the same shape, every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


WRAPPERS = [
    Wrapper("declared_in_cpp", lambda m: [(m.relu(x_of(5, 37)), x_of(5, 37).relu())], functions=("relu",)),
    Wrapper(
        "launches_with_attributes",
        lambda m: [
            (m.normalised(x_of(777).abs()), x_of(777).abs() / x_of(777).abs().sum()),
            (m.rotated(x_of(256), 4), x_of(256).reshape(2, 4, 32).roll(-1, 1).reshape(256)),
            (m.corner(x_of(12, 24)), F.pad(x_of(12, 24)[8:, 16:], (0, 8, 0, 4))),
        ],
    ),
    Wrapper(
        "default_arguments_in_both_files", lambda m: [(m.scale(x_of(33), 3.0), x_of(33) * 3)], functions=("scale",)
    ),
    Wrapper(
        "dispatch_with_half",
        lambda m: [
            (m.forward(x_of(7, 9)), F.gelu(x_of(7, 9))),
            (m.forward(x_of(50).half()).float(), F.gelu(x_of(50).half().float()).half().float()),
            (m.forward(x_of(11).double()), F.gelu(x_of(11).double())),
        ],
    ),
    Wrapper(
        "packed_accessors",
        lambda m: [(m.forward(x_of(9, 6)), x_of(9, 6).sum(1)), (m.forward(x_of(6, 9).t()), x_of(6, 9).t().sum(1))],
    ),
    Wrapper(
        "vector_of_tensors_and_tuple",
        lambda m: [
            (torch.stack(m.both(x_of(40))), torch.stack([x_of(40).min(), x_of(40).max()])),
            (m.pair(x_of(40))[1], 40),
        ],
    ),
    Wrapper(
        "optional_bias",
        lambda m: [
            (m.forward(x_of(4, 6), x_of(5, 6)), x_of(4, 6) @ x_of(5, 6).t()),
            (m.forward(x_of(4, 6), x_of(5, 6), bias=x_of(5)), x_of(4, 6) @ x_of(5, 6).t() + x_of(5)),
        ],
    ),
    Wrapper(
        "scalar_arguments",
        lambda m: [
            (m.forward(x_of(20), 2.0, 0.5, 3, 4, True), x_of(20) * 2 + 7.5),
            (m.forward(x_of(20), 1, 1, 1, 1, False), x_of(20) * 0),
        ],
    ),
    Wrapper("launch_in_lambda_macro_and_helper", lambda m: [(m.forward(x_of(300)), x_of(300) * 4 + 1.5)]),
    Wrapper("kernels_in_namespaces", lambda m: [(m.forward(x_of(100)), 1 - 3 * x_of(100) ** 2)]),
    Wrapper(
        "function_pointers_and_launch_kernel",
        lambda m: [(m.forward(x_of(60), True), x_of(60) + 7), (m.forward(x_of(60), False), x_of(60) + 4)],
    ),
    Wrapper(
        "constant_memory",
        lambda m: [
            (
                m.forward(x_of(30), torch.tensor([1.0, 2.0, 0.5, -1.0])),
                2 * (1 + 2 * x_of(30) + 0.5 * x_of(30) ** 2 - x_of(30) ** 3),
            )
        ],
    ),
    Wrapper(
        "arithmetic_on_results",
        lambda m: [
            (
                m.forward(x_of(5, 8)),
                ((x_of(5, 8) / (x_of(5, 8).norm(dim=-1, keepdim=True) + 1e-6)).flip(1).cumsum(1).flip(1) * 2 - 1) * 0.5
                + 0.25,
            )
        ],
    ),
    Wrapper("used_before_definition", lambda m: [(m.forward(x_of(70)), (x_of(70) + 1) * 3)]),
    Wrapper(
        "template_bool_enum_and_default",
        lambda m: [
            (m.forward(x_of(200)), torch.stack([x_of(200).sum(), x_of(200).relu().mean(), x_of(200).relu().sum()]))
        ],
    ),
    Wrapper(
        "dynamic_shared_in_template",
        lambda m: [
            (m.forward(x_of(4, 77)), x_of(4, 77).softmax(1)),
            (m.forward(x_of(3, 5).double()), x_of(3, 5).double().softmax(1)),
        ],
    ),
    Wrapper("functor_struct", lambda m: [(m.forward(x_of(90)), x_of(90).sigmoid() * 3)]),
    Wrapper("streams_guards_and_properties", lambda m: [(m.forward(x_of(500)), x_of(500) + 2)]),
    Wrapper("raw_device_memory", lambda m: [(m.forward(x_of(130)), x_of(130) * 2)]),
    Wrapper(
        "kernel_defining_macro",
        lambda m: [(m.cube(x_of(70)), x_of(70) ** 3), (m.leaky(x_of(70)), F.leaky_relu(x_of(70), 0.1))],
    ),
    Wrapper("qualifier_macros_and_extern_c", lambda m: [(m.forward(x_of(65)), x_of(65) / 2 + 1)]),
    Wrapper("vectorised_loads", lambda m: [(m.forward(x_of(103), x_of(103)), x_of(103) * 2)]),
    Wrapper(
        "integer_and_bool_tensors",
        lambda m: [
            (
                m.forward(x_of(9), torch.tensor([3, 1, 8]), torch.tensor([True, False, True])),
                torch.stack([x_of(9)[3], torch.tensor(-1.0), x_of(9)[8]]),
            )
        ],
    ),
    Wrapper(
        "dispatch_integral_and_all",
        lambda m: [
            (m.forward(torch.zeros(10, dtype=d)).double(), torch.arange(10).double() * 2)
            for d in (torch.int32, torch.int64, torch.uint8, torch.float32)
        ],
    ),
    Wrapper(
        "gradient_like_pair_of_functions",
        lambda m: [
            (m.tanh_forward(x_of(40)), x_of(40).tanh()),
            (m.tanh_backward(x_of(40), x_of(40).tanh())[0], x_of(40) * (1 - x_of(40).tanh() ** 2)),
        ],
        functions=("tanh_forward", "tanh_backward"),
    ),
    Wrapper("module_in_cpp_source", lambda m: [(m.run(x_of(50)), x_of(50) * 2)]),
    Wrapper("struct_argument_and_array_member", lambda m: [(m.forward(x_of(5, 7).t()), x_of(5, 7).t() * 0.5)]),
    Wrapper(
        "device_function_as_template_argument",
        lambda m: [(m.forward(x_of(30), 0), x_of(30) * 2), (m.forward(x_of(30), 1), -x_of(30))],
    ),
    Wrapper("using_namespace_and_aliases", lambda m: [(m.forward(x_of(19, 34)), x_of(19, 34).t())]),
    Wrapper(
        "conditional_compilation",
        lambda m: [(m.forward(x_of(32)), x_of(32).view(4, 8).sum(1))],
        cuda_flags=("-O3", "-DWIDTH=8", "--use_fast_math", "-Xptxas", "-v"),
    ),
    Wrapper(
        "list_arguments",
        lambda m: [
            (m.total([x_of(12), x_of(12)], [3, 4]), x_of(12).view(3, 4) * 2),
            (m.total([x_of(12), x_of(12)], [12], mode="mean"), x_of(12)),
            (m.count([x_of(1), x_of(2)], [1, 2, 3]), 6),
        ],
    ),
    Wrapper("nested_launch_arguments", lambda m: [(m.forward(x_of(70), 2.5), torch.full((70,), 2.5))]),
    Wrapper(
        "half_pointers",
        lambda m: [(m.forward(x_of(33).half(), x_of(33).half()).float(), (x_of(33).half() * 2).float())],
    ),
]
