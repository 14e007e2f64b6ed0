"""Reads candidates from files. Judges nothing, executes nothing."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import CandidateError
from kernelwright.records import Candidate, Provenance, SourceFile
from kernelwright.tasks.candidate_files import files_beside, main_file
from kernelwright.tasks.files import read_text
from kernelwright.tasks.language import SUFFIXES, detect_language


def candidate_from_text(text: str, origin: str, suffix: str = ".py") -> Candidate:
    """Returns a candidate from text, named after its origin."""
    return Candidate(
        sources=(SourceFile(path=f"candidate{suffix}", content=text),),
        language=detect_language(text, suffix),
        provenance=Provenance(origin=origin),
    )


def load_candidate(path: Path | str) -> Candidate:
    """Returns a candidate from a `.py`, `.cu`, `.cpp` or `.hip` file, or from a folder with a `candidate.py`.

    The files beside it that it loads, builds by a `setup.py` or includes come along (`candidate_files`). Does not check
    for the class `ModelNew`: a candidate without it gets a verdict from the judge. Raises `CandidateError`.
    """
    file = main_file(Path(path))
    text = read_text(file, CandidateError, "the candidate")
    if file.suffix not in (".py", *SUFFIXES):
        raise CandidateError(f"the candidate {str(file)!r} ends in {file.suffix!r}", hint="use .py, .cu, .cpp or .hip")
    candidate = candidate_from_text(text, file.name, file.suffix)
    more = files_beside(file, text)
    if any(source.path.endswith((".cu", ".cuh")) for source in more):
        candidate = candidate.changed(language="cuda")
    return candidate.changed(sources=(*candidate.sources, *more))
