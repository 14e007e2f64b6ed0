"""Reads candidates from files. Judges nothing, executes nothing."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import CandidateError
from kernelwright.records import Candidate, Provenance, SourceFile
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
    """Returns a candidate from a `.py`, `.cu`, `.cpp` or `.hip` file. Raises `CandidateError`.

    Does not check for the class `ModelNew`: a candidate without it gets a verdict from the judge.
    """
    file = Path(path)
    text = read_text(file, CandidateError, "the candidate")
    if file.suffix not in (".py", *SUFFIXES):
        raise CandidateError(f"the candidate {str(file)!r} ends in {file.suffix!r}", hint="use .py, .cu, .cpp or .hip")
    return candidate_from_text(text, file.name, file.suffix)
