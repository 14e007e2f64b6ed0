"""A program's own headers: what is put into its text, how often, and under which names and lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.backends.source_text.split import split
from kernelwright.backends.source_text.tokens import line_at, tokenize
from kernelwright.checks import program_sources
from kernelwright.errors import CandidateError

MAIN = '#include <cstdio>\n#include "a.h"\n#include "b.h"\nint main() {}\n'


def written(folder: Path, **files: str) -> Path:
    for name, text in {"main_cu": MAIN, **files}.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder / "main.cu"


def read(main: Path, *files: Path, flags: tuple[str, ...] = ()) -> str:
    return program_sources.read(main, files, flags).main


def test_lines_and_names_are_those_of_the_files(tmp_path: Path) -> None:
    text = read(written(tmp_path, a_h="#pragma once\nint first;\n", b_h='#include "a.h"\n\nint last;\n'))
    words = {token.text: token for token in tokenize(text) if token.kind == "word"}
    assert [line_at(text, words[name].start) for name in ("first", "last", "main")] == [2, 3, 4]
    assert text.count("int first;") == 1


@pytest.mark.parametrize(
    "guarded",
    [
        "#pragma once\nint first;\n",
        "#ifndef A_H\n#define A_H\nint first;\n#endif\n",
        "// c\n#if !defined(A)\n#define A\nint first;\n#endif // A\n",
    ],
)
def test_a_guarded_header_stands_once(tmp_path: Path, guarded: str) -> None:
    main = '#include "a.h"\n#include "a.h"\nint main() {}\n'
    assert read(written(tmp_path, main_cu=main, a_h=guarded)).count("int first;") == 1


def test_a_header_without_a_guard_stands_as_often_as_it_is_included(tmp_path: Path) -> None:
    main = 'int a[] = {\n#include "a.h"\n};\nint b[] = {\n#include "a.h"\n};\nint main() {}\n'
    assert read(written(tmp_path, main_cu=main, a_h="7,\n")).count("7,") == 2


def test_a_header_that_first_stands_in_a_conditional_is_put_in_again(tmp_path: Path) -> None:
    main = '#ifdef NEVER\n#include "a.h"\n#endif\n#include "a.h"\nint main() { return first; }\n'
    text = read(written(tmp_path, main_cu=main, a_h="#pragma once\nint first;\n"))
    assert text.count("int first;") == 2 and text.count("#ifndef KW_ONCE") == 2


def test_folders_and_given_files_are_searched(tmp_path: Path) -> None:
    main = '#include <deep/a.h>\n#include "b.h"\nint main() {}\n'
    (tmp_path / "other").mkdir()
    path = written(tmp_path, main_cu=main, other__b_h="int last;\n")
    (tmp_path / "inc" / "deep").mkdir(parents=True)
    (tmp_path / "inc" / "deep" / "a.h").write_text("int first;\n")
    text = read(path, tmp_path / "other" / "b.h", flags=(f"-I{tmp_path / 'inc'}",))
    assert "int first;" in text and "int last;" in text and '"inc/deep/a.h"' in text and str(tmp_path) not in text


def test_what_is_no_source_is_not_read(tmp_path: Path) -> None:
    main = '#include "secret"\n#include "/etc/hostname.h"\nint main() {}\n'
    (tmp_path / "secret").write_text("int secret;\n")
    assert "int secret" not in read(written(tmp_path, main_cu=main))


def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="without end"):
        read(written(tmp_path, a_h='#include "b.h"\n', b_h='#include "a.h"\n'))


def test_sources_that_are_included_are_no_units(tmp_path: Path) -> None:
    main = '#include "k.cu"\nint main() {}\n'
    path = written(tmp_path, main_cu=main, k_cu="int k;\n", more_cpp="int m;\n", data_txt="1\n")
    found = program_sources.read(path, [tmp_path / "k.cu", tmp_path / "more.cpp", tmp_path / "data.txt"], ())
    assert found.unit_names == ("more.cpp",) and "int k;" in found.main


def test_lines_hold_behind_a_declaration_that_one_side_lacks(tmp_path: Path) -> None:
    main = 'struct Host {\n#include "a.h"\n};\n__global__ void k() {}\nint main() { Host h; }\n'
    text = read(written(tmp_path, main_cu=main, a_h="int one;\nint two;\nint three;\nint four;\nint five;\n"))
    parts = split(text, whole=True)
    assert "one" not in parts.device
    assert line_at(parts.device, parts.device.index("__global__")) == 4


def test_a_helper_of_the_samples_may_be_named_by_the_path_of_their_tree(tmp_path: Path) -> None:
    main = '#include "../../common/inc/helper_cuda.h"\n#include "../../common/inc/other.h"\nint main() {}\n'
    text = read(written(tmp_path, main_cu=main))
    assert "#include <helper_cuda.h>" in text and '"../../common/inc/other.h"' in text


def test_a_line_number_without_end_is_none() -> None:
    source = "int a;\n#line " + "9" * 5000 + "\nint b;\n"
    assert line_at(source, source.index("int b")) == 3
