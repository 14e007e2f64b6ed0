"""The files that come along with a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.errors import CandidateError
from kernelwright.tasks import load_candidate
from kernelwright.tasks.candidate_files import MAX_FILES

LOADS = "from torch.utils.cpp_extension import load\next = load('e', ['csrc/a.cu'])\n"
INLINE = "from torch.utils.cpp_extension import load_inline\next = load_inline('e', '', '')\n"


def _folder(path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return path


def _names(path: Path) -> list[str]:
    return [source.path for source in load_candidate(path).sources]


def test_a_candidate_that_loads_files_has_them(tmp_path: Path) -> None:
    files = {
        "candidate.py": LOADS,
        "csrc/a.cu": "int a;\n",
        "csrc/own/b.cuh": "",
        "task.py": "x = 1\n",
        "notes.txt": "n",
    }
    _folder(tmp_path, files)
    assert _names(tmp_path / "candidate.py") == ["candidate.py", "csrc/a.cu", "csrc/own/b.cuh"]
    assert load_candidate(tmp_path).language == "cuda"


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ("from torch.utils.cpp_extension import (\n    load,\n    load_inline,\n)\n", True),
        ("import torch.utils.cpp_extension as ext\next.load('e', ['a.cu'])\n", True),
        ("from torch.utils import cpp_extension as ext\next.load('e', ['a.cu'])\n", True),
        ("import torch\ntorch.utils.cpp_extension.load('e', ['a.cu'])\n", True),
        (INLINE.replace("'')", "'', extra_include_paths=['.'])"), True),
        (INLINE + "more = {'extra_include_paths': ['.']}\n", True),
        (INLINE + "import torch\nstate = torch.load('w.pt')  # cpp_extension: no load\n", False),
        ("from torch.utils.cpp_extension import load_inline  # does not load files\n", False),
        ("from torch.utils.cpp_extension import load, (\n", False),
    ],
)
def test_files_come_along_where_the_code_loads_them(tmp_path: Path, text: str, loads: bool) -> None:
    _folder(tmp_path, {"candidate.py": text, "a.cu": "int a;\n"})
    assert _names(tmp_path) == ["candidate.py", *(["a.cu"] if loads else [])]


def test_an_inline_candidate_has_no_other_file(tmp_path: Path) -> None:
    _folder(tmp_path, {"candidate.py": INLINE, "other.cu": "int a;\n"})
    assert _names(tmp_path / "candidate.py") == ["candidate.py"]


def test_a_setup_brings_packages_and_no_other_python(tmp_path: Path) -> None:
    files = {"candidate.py": "import p\n", "setup.py": "s = 1\n", "p/__init__.py": "", "p/c.cpp": "int c;\n"}
    _folder(tmp_path, {**files, "task.py": "x = 1\n", "tools/run.py": "x = 1\n", ".git/h.h": "int g;\n"})
    assert sorted(_names(tmp_path)) == ["candidate.py", "p/__init__.py", "p/c.cpp", "setup.py"]


def test_a_folder_needs_a_candidate(tmp_path: Path) -> None:
    _folder(tmp_path, {"a.py": LOADS, "b.py": LOADS})
    with pytest.raises(CandidateError, match="no candidate.py"):
        load_candidate(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    _folder(tmp_path, {"candidate.py": LOADS, **{f"h{k}.h": "int a;\n" for k in range(MAX_FILES + 1)}})
    with pytest.raises(CandidateError, match="lie beside"):
        load_candidate(tmp_path)


def test_a_link_does_not_come_along(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "c", {"candidate.py": LOADS})
    (tmp_path / "secret.h").write_text("int s;\n")
    (folder / "s.h").symlink_to(tmp_path / "secret.h")
    assert _names(folder) == ["candidate.py"]
