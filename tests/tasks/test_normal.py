"""The normal form of a task's text: the same computation, in one spelling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.generate import generate
from kernelwright.tasks.normal_form.normal import normal_form

WORDY = '''
"""A file."""
import torch
import torch.nn as nn

rows, cols = 4, 2 * 3  # sizes
shape = (cols, 5)
slope = 0.25
unused = 7

class Model(torch.nn.Module):
    """Squares a square."""

    def __init__(self, slope: float, dim: int = 0, *, flag=None):
        """Sets it up."""
        super(Model, self).__init__()
        self.slope, self.dim = slope, dim
        self.width: int = rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Square."""
        # square
        y: torch.Tensor = torch.nn.functional.leaky_relu(x, self.slope)
        return nn.functional.softmax(y, dim=self.dim) * self.width

def get_init_inputs():
    return [slope, -1]

def get_inputs():
    cols = 9
    return [torch.randn(rows, *shape), torch.zeros(cols)][:1]
'''


def run(source: str, device: str = "cpu") -> tuple[Any, list[Any]]:
    """Returns the model and its inputs, on a device."""
    scope: dict[str, Any] = {}
    torch.manual_seed(0)
    with torch.device(device):
        exec(compile(source, "task", "exec"), scope)
        model = scope["Model"](*scope["get_init_inputs"]())
        return model, scope["get_inputs"]()


def test_what_is_not_code_goes_and_constants_stand_where_they_are_used() -> None:
    text = normal_form(WORDY)
    for gone in (
        "Squares",
        "Square",
        "#",
        "unused",
        "torch.Tensor",
        "nn.functional.",
        "torch.nn.Module",
        "super(Model",
        "shape",
    ):
        assert gone not in text, gone
    assert "torch.randn(4, 6, 5)" in text and "return [0.25, -1]" in text
    assert "cols = 9" in text and "torch.zeros(cols)" in text  # a name of the function's own
    assert text.startswith("import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nrows, cols = ")
    assert text.index("class Model") < text.index("def get_inputs") < text.index("def get_init_inputs")


def test_it_computes_the_same() -> None:
    (model, inputs), (normal, same) = run(WORDY), run(normal_form(WORDY))
    assert torch.equal(inputs[0], same[0])
    assert torch.equal(model(*inputs), normal(*same))


def test_constructor_arguments_show_the_values_that_they_get() -> None:
    text = normal_form(WORDY.replace(", *, flag=None", ""))
    assert "def __init__(self, slope=0.25, dim=-1):" in text
    assert "def __init__(self, slope, dim=0, *, flag=None):" in normal_form(WORDY)  # not understood, so left


def test_every_module_shows_a_constructor_before_its_other_functions() -> None:
    bare = "class Model(nn.Module):\n    def forward(self, x):\n        return x\n"
    text = normal_form("import torch.nn as nn\n" + bare)
    assert "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n    def forward" in text
    assert "__init__" not in normal_form(bare.replace("nn.Module", "Other"))
    late = bare + "    def __init__(self, n):\n        super().__init__()\n"
    assert normal_form(late).index("__init__(self, n)") < normal_form(late).index("forward")


def test_class_attributes_stay_before_the_constructor() -> None:
    body = "class Model(nn.Module):\n    size = 3\n    def forward(self, x):\n        return x\n"
    text = normal_form(body + "    def __init__(self, n=size):\n        super().__init__()\n")
    assert text.index("size = 3") < text.index("__init__") < text.index("forward")


def test_imports_stay_where_they_are_read() -> None:
    head = "from torch import nn\nfrom typing import Optional\nimport math, os.path\nfrom helpers import *\n"
    text = normal_form(
        head + WORDY.replace("self.width: int = rows", "self.width: Optional[int] = math.hypot(rows, 1)")
    )
    assert "import math, os.path\nfrom helpers import *\n" in text
    assert "typing" not in text and "from torch" not in text


def test_what_may_change_is_no_constant() -> None:
    listed = WORDY.replace("shape = (cols, 5)", "shape = [cols]\nshape.append(5)")
    assert "torch.randn(4, *shape)" in normal_form(listed) and "shape.append(5)" in normal_form(listed)
    assert "lambda rows: rows" in normal_form(WORDY.replace("    cols = 9", "    cols = 9\n    f = lambda rows: rows"))


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("CFG = {'rows': 7}", "torch.randn(7)"),
        ("CFG = dict(rows=7)", "torch.randn(7)"),
        ("CFG = {'rows': 7}\nCFG['rows'] = 8", "torch.randn(CFG['rows'])"),
        ("CFG = {'rows': 7}\nCFG.update(rows=8)", "torch.randn(CFG['rows'])"),
        ("CFG = {'rows': 7}\nOTHER = CFG", "torch.randn(CFG['rows'])"),
        ("CFG = {'cols': 7}", "torch.randn(CFG['rows'])"),
    ],
)
def test_items_of_a_table_that_nothing_changes_are_constants(before: str, wanted: str) -> None:
    model = "class Model(nn.Module):\n    def forward(self, x):\n        return x\n"
    text = normal_form(f"{before}\n{model}def get_inputs():\n    return [torch.randn(CFG['rows'])]\n")
    assert wanted in text and ("CFG" in text) == ("CFG" in wanted)


def test_many_constants_take_no_time() -> None:
    chain = "a0 = 1\n" + "".join(f"a{i + 1} = a{i} + 0\n" for i in range(3000))
    text = normal_form(chain + WORDY)
    assert "a2999" not in text and "torch.randn(4, 6, 5)" in text


def test_generated_tasks_keep_their_shapes_and_weights() -> None:
    for task in generate(4711, 120):
        text = normal_form(task.source)
        assert normal_form(text) == text, task.name
        (model, inputs), (normal, same) = run(task.source, "meta"), run(text, "meta")
        shapes = [getattr(x, "shape", x) for x in inputs]
        assert shapes == [getattr(x, "shape", x) for x in same], task.name
        weights = {k: v.shape for k, v in model.state_dict().items()}
        assert weights == {k: v.shape for k, v in normal.state_dict().items()}, task.name


def test_names_of_the_file_are_not_taken_for_torchs() -> None:
    text = normal_form(WORDY.replace("unused = 7", "F = 2.0\nunused = F"))
    assert "nn.functional.leaky_relu" in text
    theirs = WORDY.replace('"""A file."""', "import numpy as np\nimport scipy.special as F\nerror = F.erf(np.ones(3))")
    assert "import numpy as np\nimport scipy.special as F\n" in normal_form(theirs)
    assert "nn.functional.leaky_relu" in normal_form(theirs)


@pytest.mark.parametrize("text", ["", "not python (", "x = 1\n", "def f(:\n", "\x00", "class Other: pass\n"])
def test_any_other_text_stays(text: str) -> None:
    assert normal_form(text) == text.strip()


def test_a_name_with_two_values_is_no_constant() -> None:
    text = normal_form(WORDY.replace("unused = 7", "rows = 8"))
    assert "torch.randn(rows, 6, 5)" in text and "rows = 8" in text


@pytest.mark.parametrize(
    "value", ["10 ** 10 ** 10", "2 ** 64 * 2 ** 64", "1 / 0", "1e999", "1e300 * 1e300", "'a' * 10", "[1] * 99", "-'a'"]
)
def test_arithmetic_of_any_kind_ends(value: str) -> None:
    assert "rows" in normal_form(WORDY.replace("rows, cols = 4, 2 * 3", f"rows, cols = {value}, 6"))


@given(st.text(alphabet="class Model:\n ()=1,def[]\"'#x", max_size=120))
@settings(max_examples=200, deadline=None)
def test_no_text_is_too_odd(text: str) -> None:
    assert isinstance(normal_form("class Model: pass\n" + text), str)
