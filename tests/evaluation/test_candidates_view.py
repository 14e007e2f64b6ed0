"""What a candidate's process can see of Kernelwright and of other processes, attacked from inside, one property a test.

Each candidate computes the right answer and tries one thing first. It raises `Leaked` where the attempt succeeds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined import Place, attempt
from relu_task import RELU

import kernelwright
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes import landlock, roles
from kernelwright.records import Evaluation, Task
from kernelwright.tasks import candidate_from_text

PACKAGE = Path(kernelwright.__file__).resolve().parent
BODY = '''
import torch, torch.nn as nn
from kernelwright.cuda import Module

k = Module(r"""extern "C" __global__ void f(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fmaxf(x[i], 0.f); }""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x); n = x.numel()
        k.f[((n + 255) // 256, 1, 1), (256, 1, 1), 0](x.contiguous(), y, n)
        return y
'''
BUNDLED = str(PACKAGE / "data" / "candidates" / "row_softmax" / "module.py")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(trials=1, seed=5)) as made:
        yield made


def judged(evaluator: Evaluator, tried: str) -> Evaluation:
    code = f"class Leaked(Exception):\n    pass\n\n{tried}\n{BODY}"
    found = evaluator.evaluate(Task(task_id="relu", source=RELU), candidate_from_text(code, "attempt"))
    assert "Leaked" not in found.reason, found.reason
    return found


def rules(found: Evaluation) -> set[str]:
    return {f.rule for f in found.findings if f.severity == "reject"}


IMPORTS = {
    "import_module": "import importlib\nimportlib.import_module(NAME)",
    "dunder": "__import__(NAME)",
    "exec": "exec('import ' + NAME)",
    "spec": "import importlib.util\nimportlib.util.find_spec(NAME)",
    "runpy": "import runpy\nrunpy.run_module(NAME)",
    "without-finder": "import sys\nsys.meta_path[:] = sys.meta_path[1:]\n__import__(NAME)",
}


@pytest.mark.parametrize(
    "module", ["solutions", "evaluation.judge.rules", "machine.runtime", "backends.build", "tasks"]
)
def test_no_module_but_cuda_can_be_imported(evaluator: Evaluator, module: str) -> None:
    tried = f"NAME = 'kernel' + 'wright.{module}'\n{IMPORTS['import_module']}\nraise Leaked"
    found = judged(evaluator, tried)
    assert found.verdict == "rejected" and "harness-access" in rules(found), found.reason


@pytest.mark.parametrize("way", IMPORTS)
def test_no_way_of_importing_is_left(evaluator: Evaluator, way: str) -> None:
    tried = f"NAME = 'kernel' + 'wright.solutions'\n{IMPORTS[way]}\nraise Leaked"
    found = judged(evaluator, tried)
    assert found.verdict == "rejected" and "harness-access" in rules(found), found.reason


def test_a_refused_import_that_is_caught_is_reported(evaluator: Evaluator) -> None:
    tried = "import importlib\ntry:\n    importlib.import_module('kernel' + 'wright.solutions')\n    raise Leaked\n"
    found = judged(evaluator, tried + "except ImportError as error:\n    assert 'belongs to the judge' in str(error)\n")
    assert found.verdict == "rejected" and "harness-access" in rules(found), found.reason


def test_sys_modules_names_no_module_but_cuda(evaluator: Evaluator) -> None:
    tried = (
        "import sys\nfound = [name for name in sys.modules if name.startswith('kernel' + 'wright')]\n"
        "if sorted(found) != ['kernelwright', 'kernelwright.cuda']:\n    raise Leaked(str(found))\n"
        "found = [name for name in vars(sys.modules['kernelwright']) if not name.startswith('_')]\n"
        "if found != ['cuda']:\n    raise Leaked(str(found))\n"
    )
    assert judged(evaluator, tried).verdict == "correct"


FILES = {
    "bundled": BUNDLED,
    "solutions": str(PACKAGE / "solutions" / "__init__.py"),
    "judge": str(PACKAGE / "evaluation" / "judge" / "rules.py"),
    "cuda": str(PACKAGE / "cuda.py"),
}


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no landlock")
@pytest.mark.parametrize("file", FILES)
def test_no_file_of_the_package_can_be_read(evaluator: Evaluator, file: str) -> None:
    tried = f"try:\n    raise Leaked(open({FILES[file]!r}).read(40))\nexcept PermissionError:\n    pass\n"
    found = judged(evaluator, tried)
    assert found.verdict == "rejected" and "harness-access" in rules(found), found.reason


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no landlock")
@pytest.mark.parametrize(
    "file",
    ["self/mem", "self/environ", "thread-self/mem", pytest.param(f"{os.getpid()}/maps", id="the judge's"), "1/environ"],
)
def test_no_file_of_a_process_that_leads_elsewhere_can_be_read(evaluator: Evaluator, file: str) -> None:
    tried = f"try:\n    open('/proc/{file}', 'rb')\n    raise Leaked\nexcept OSError:\n    pass\n"
    assert judged(evaluator, tried).verdict == "correct"


def test_files_that_libraries_read_are_left(evaluator: Evaluator) -> None:
    tried = "\n".join(
        f"assert open('/proc/{name}').read()"
        for name in ("self/status", "self/maps", "self/stat", "cpuinfo", "meminfo")
    )
    assert judged(evaluator, tried).verdict == "correct"


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no landlock")
def test_a_package_among_the_libraries_is_hidden_and_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "lib" / "site-packages"
    (libraries / "kernelwright" / "data").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    secret = libraries / "kernelwright" / "data" / "answer.py"
    for file in (secret, libraries / "other.py"):
        file.write_text("the answer")
    monkeypatch.setattr(roles, "PACKAGE", libraries / "kernelwright")
    monkeypatch.setattr(roles, "library_paths", lambda: (tmp_path, libraries, libraries / "kernelwright"))
    readable, listable = roles.candidate_paths.__wrapped__()
    place = Place(Path(tempfile.mkdtemp()), tmp_path, None)
    jail = place.jail(readable=readable, listable=listable)
    assert attempt((libraries / "other.py").read_text, place, jail=jail).worked
    assert attempt(lambda: len(os.listdir(libraries)), place, jail=jail).value == "2", "an import lists the folder"
    linked = tmp_path / "lib64" / secret.relative_to(tmp_path / "lib")
    for path in (secret, linked):
        assert attempt(path.read_text, place, level=None).worked
        assert attempt(path.read_text, place, jail=jail).refused


NATIVE = '''
import torch
from torch.utils.cpp_extension import load_inline

HOST = r"""
#include <torch/extension.h>
#include <fcntl.h>
#include <unistd.h>
int64_t opened(int64_t which) {
    const char* paths[] = {%s};
    return open(paths[which], O_RDONLY) >= 0;
}
"""
native = load_inline(name="native", cpp_sources=HOST, functions=["opened"])
if not native.opened(0):
    raise RuntimeError("the attempt itself does not work")
for which in range(1, %d):
    if native.opened(which):
        raise Leaked(str(which))
'''


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no landlock")
def test_native_code_can_read_no_such_file_either(evaluator: Evaluator) -> None:
    tests = str(Path(__file__).resolve())
    paths = ["/proc/self/status", *FILES.values(), tests, "/proc/self/mem", "/proc/self/environ", "/proc/1/maps"]
    paths += [f"/proc/{os.getpid()}/{name}" for name in ("maps", "mem", "environ")]
    tried = NATIVE % (", ".join(f'"{path}"' for path in paths), len(paths))
    found = judged(evaluator, tried)
    assert found.verdict == "correct", (found.verdict, found.reason, found.log)


def test_a_candidate_that_shows_a_traceback_is_not_blamed(evaluator: Evaluator) -> None:
    """Python reads the files of all frames for it, ours included."""
    wrong = "try:\n    Module('int x;').missing\nexcept Exception:\n    print(traceback.format_exc())\n"
    found = judged(evaluator, f"import traceback\nfrom kernelwright.cuda import Module\n{wrong}")
    assert found.verdict == "correct", (found.reason, found.findings)
    assert "has no __global__" in found.log and "cuda.py" not in found.log, "its frames are ours"


FRAMES = {
    "hidden name": "getattr(sys, '_get' + 'frame')().f_back",
    "traceback": "getattr(caught().__traceback__, 'tb_' + 'frame').f_back",
    "logging": "logging.currentframe().f_back",
    "generator": "getattr((i for i in ()), 'gi_' + 'frame').f_back",
}
OWN = """
import logging, sys

class Pair:
    def __init__(self, f_back=None):
        self.f_front, self.f_back = None, f_back

def caught():
    try:
        1 / 0
    except ZeroDivisionError as error:
        return error

fields = {"f_back": Pair(f_back=3).f_back}
"""


def test_an_attribute_of_its_own_that_is_called_like_a_frames_convicts_nobody(evaluator: Evaluator) -> None:
    found = judged(evaluator, OWN + "logging.getLogger('own').warning('a message')")
    assert found.verdict == "correct" and not rules(found), found.reason


@pytest.mark.parametrize("way", FRAMES)
def test_a_real_frame_is_seen_beside_such_an_attribute(evaluator: Evaluator, way: str) -> None:
    found = judged(evaluator, f"{OWN}\n{FRAMES[way]}")
    assert found.verdict == "rejected" and rules(found) == {"frame-walk"}, (found.reason, found.findings)
