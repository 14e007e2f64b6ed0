"""Python containers that C++ code makes and takes through pybind11, and torch's list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.backends.build import build
from kernelwright.backends.extension import Extension
from kernelwright.builds import BuildRequest
from kernelwright.machine.runtime import Runtime

HEAD = "#include <torch/extension.h>\nusing torch::Tensor;\n"


def function(cache: Path, text: str) -> Any:
    result = build(BuildRequest("extension", "objects", cpp_source=HEAD + text, functions=("f",)), cache)
    assert result.status == "ok", result.log
    return Extension(result, Runtime(lambda request: build(request, cache))).f


MADE = {
    "py::tuple f(Tensor x) { return py::make_tuple(x, 2, 1.5, std::string(\"a\"), py::none()); }": (2, 1.5, "a", None),
    "py::tuple f(Tensor x) { py::tuple t(2); t[0] = x; t[1] = 3; return t; }": (3,),
    "py::object f(Tensor x) { return py::make_tuple(x, std::vector<int64_t>{4, 5}); }": ([4, 5],),
    "py::object f(Tensor x) { if (x.numel() > 9) return py::none(); return py::cast(std::make_pair(x, 7)); }": (7,),
}  # fmt: skip


@pytest.mark.parametrize("text", MADE)
def test_tuples(cache: Path, text: str) -> None:
    x = torch.ones(2)
    made = function(cache, text)(x)
    assert isinstance(made, tuple) and made[0].data_ptr() == x.data_ptr() and made[1:] == MADE[text]


def test_lists_and_dictionaries(cache: Path) -> None:
    text = (
        "py::dict f(Tensor x, py::list more) { py::list all; all.append(x); for (auto one : more) all.append(one);\n"
        '  py::dict out; out["all"] = all; out["count"] = py::len(all); out["count"] = int(all.size()) + 10;\n'
        '  out["inner"] = py::dict(); return out; }'
    )
    x = torch.ones(2)
    made = function(cache, text)(x, [x, "b", 2.5, None, (1, [2])])
    assert list(made) == ["all", "count", "inner"] and made["count"] == 16 and made["inner"] == {}
    assert torch.equal(made["all"][1], x) and made["all"][2:] == ["b", 2.5, None, (1, [2])]


def test_dictionaries_as_arguments(cache: Path) -> None:
    text = (
        "Tensor f(const py::dict& given, std::map<std::string, Tensor> named,\n"
        "         std::unordered_map<int64_t, double> by) {\n"
        '  TORCH_CHECK(given.contains("n") && !given.contains("m") && by.size() == 1);\n'
        '  return named.at("x") * py::cast<double>(given["n"]) + given["y"].cast<Tensor>() * by[7]; }'
    )
    f, x = function(cache, text), torch.ones(2)
    assert torch.equal(f({"n": 3, "y": x}, {"x": x}, {7: 0.5}), 3.5 * x)
    with pytest.raises(TypeError, match="argument 2 must be a dict"):
        f({}, [x], {})


def test_objects_as_arguments(cache: Path) -> None:
    text = (
        "Tensor f(py::object given, py::tuple sizes, py::object factor = py::none()) {\n"
        "  Tensor x = given.is_none() ? torch::ones({sizes[0].cast<int64_t>()}) : given.cast<Tensor>();\n"
        "  return factor ? x * factor.cast<double>() : x; }"
    )
    f = function(cache, text)
    assert torch.equal(f(None, (3,), 2.0), torch.full((3,), 2.0))
    assert torch.equal(f(torch.zeros(2), (), None), torch.zeros(2))
    with pytest.raises(TypeError, match="argument 2 must be a tuple"):
        f(None, [3], None)


def test_what_a_list_shares(cache: Path) -> None:
    text = (
        "int64_t f(torch::List<Tensor> list) { auto same = list; same.push_back(list.get(0));\n"
        "  auto other = list.copy(); other.clear(); int64_t n = 0;\n"
        "  for (const Tensor& t : list.vec()) n += t.numel(); return 10 * n + list.size(); }"
    )
    assert function(cache, text)([torch.ones(2), torch.ones(3)]) == 73


def test_texts_that_are_looked_at(cache: Path) -> None:
    text = (
        "int64_t f(std::string_view a, const char* b) {\n"
        '  return 10 * a.size() + (a == "abc") + (b == std::string("d")); }'
    )
    assert function(cache, text)("abc", "d") == 32
    with pytest.raises(TypeError, match="argument 2 must be a str"):
        function(cache, text)("abc", None)


def test_tensors_that_may_be_owned(cache: Path) -> None:
    text = (
        "int64_t f(Tensor x, std::optional<Tensor> more) {\n"
        "  c10::MaybeOwned<Tensor> owned = at::borrow_from_optional_tensor(more);\n"
        "  const Tensor& other = *owned; auto plain = x.expect_contiguous();\n"
        "  return plain->is_contiguous() + (other.defined() ? 10 * plain->stride(0) : 0); }"
    )
    x = torch.ones(2, 3).t()
    assert function(cache, text)(x, x) == 21 and function(cache, text)(x, None) == 1


def test_one_of_two_overloads(cache: Path) -> None:
    text = (
        "int64_t f(int64_t a) { return a; }\nint64_t f(int64_t a, double b) { return a + int64_t(b); }\n"
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
        '  m.def("f", py::overload_cast<int64_t, double>(&f)); }'
    )
    result = build(BuildRequest("extension", "objects", cpp_source=HEAD + text), cache)
    assert result.status == "ok", result.log
    assert Extension(result, Runtime(lambda request: build(request, cache))).f(1, 2.0) == 3
