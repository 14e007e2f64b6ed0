"""From judged runs to training data: methods of the literature as pure functions over samples, and one writer.

`gather` reads runs and corpora into samples; a function of `METHODS` picks and pairs them into rows; `write` takes out
doubles and what is too near to a suite, and writes rows, manifest and datasheet. Imports neither torch nor datasets.
"""

from __future__ import annotations

from kernelwright.curation.gather import gather
from kernelwright.curation.methods import METHODS, CurationSettings
from kernelwright.curation.samples import CuratedSample, Episode

__all__ = ["METHODS", "Episode", "CuratedSample", "CurationSettings", "gather"]
