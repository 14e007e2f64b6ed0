"""Reading candidates from files, and telling what they are written in. Judges nothing."""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.errors import CandidateError
from kernelwright.records import Candidate, Language, Provenance, SourceFile
from kernelwright.tasks.files import read_text

_SUFFIXES: dict[str, Language] = {".cu": "cuda", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".hip": "hip"}


def detect_language(text: str, suffix: str = ".py") -> Language:
    """What a candidate is written in, from its text; `torch` when it has no kernel of its own."""
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if "__global__" in text or re.search(r"\bcuda_sources?\s*=", text) or "kernelwright.cuda" in text:
        return "hip" if re.search(r"#include\s*<hip/", text) else "cuda"
    if re.search(r"@\s*(triton\.)?jit\b", text) and "triton" in text:
        return "triton"
    if re.search(r"\bload_inline\s*\(|\bcpp_extension\.load\s*\(", text):
        return "cpp"
    return "torch"


def candidate_from_text(text: str, origin: str, suffix: str = ".py") -> Candidate:
    """A candidate from text, named after where it came from."""
    return Candidate(
        sources=(SourceFile(path=f"candidate{suffix}", content=text),),
        language=detect_language(text, suffix),
        provenance=Provenance(origin=origin),
    )


def load_candidate(path: Path | str) -> Candidate:
    """A candidate from a `.py`, `.cu`, `.cpp` or `.hip` file. Raises `CandidateError`."""
    file = Path(path)
    text = read_text(file, CandidateError, "the candidate")
    if file.suffix not in (".py", *_SUFFIXES):
        raise CandidateError(f"the candidate {str(file)!r} ends in {file.suffix!r}", hint="use .py, .cu, .cpp or .hip")
    return candidate_from_text(text, file.name, file.suffix)
