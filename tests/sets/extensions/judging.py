"""Makes the task and the candidate of an extension of this set, whole or with its planted bug."""

from __future__ import annotations

from kernelwright.records import Candidate, Task
from kernelwright.tasks import load_candidate
from sets.extensions import Planted


def task(extension: Planted) -> Task:
    return Task(task_id=f"extension-{extension.name}", source=(extension.folder / "task.py").read_text())


def candidate(extension: Planted, planted: bool = False) -> Candidate:
    """Returns the candidate of the extension's folder. Raises `ValueError` if the planted edit does not fit."""
    found = load_candidate(extension.folder)
    if not planted:
        return found
    sources = []
    for source in found.sources:
        if source.path == extension.file:
            if source.content.count(extension.old) != 1:
                raise ValueError(
                    f"{extension.name}: the edited text occurs {source.content.count(extension.old)} times"
                )
            source = source.changed(content=source.content.replace(extension.old, extension.new))
        sources.append(source)
    edited = found.changed(sources=tuple(sources))
    if edited == found:
        raise ValueError(f"{extension.name}: the candidate has no file {extension.file}")
    return edited
