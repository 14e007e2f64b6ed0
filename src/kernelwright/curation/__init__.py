"""Makes training data from judged runs: methods of the literature as pure functions over samples, and one writer.

`gather` reads runs and corpora into samples; a function of `METHODS` selects and pairs them into rows; `write` removes
duplicates and rows too near to a suite, and writes rows, manifest and datasheet. Imports neither torch nor datasets.
"""

from __future__ import annotations

from kernelwright.curation.gather import gather
from kernelwright.curation.methods import METHODS, CurationSettings
from kernelwright.curation.samples import CuratedSample, Episode

__all__ = ["METHODS", "Episode", "CuratedSample", "CurationSettings", "gather"]
