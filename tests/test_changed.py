"""The choice of tests for `make check`."""

from __future__ import annotations

from pathlib import Path

import changed
from costs import cost


def test_the_subset_has_tests_of_every_folder_and_fits() -> None:
    chosen = changed.subset()
    assert {Path(name).parent for name in chosen} == {Path(name).parent for name in changed.files()}
    assert sum(map(cost, chosen)) <= changed.BUDGET and changed.ALWAYS in chosen


def test_a_module_stands_for_its_importers_then_for_its_folder() -> None:
    found = list(changed.tests_of("src/kernelwright/policies/scripted.py"))
    assert found[0] == "policies/test_scripted.py" and "policies/test_template.py" in found
    assert "machine/test_core.py" not in found
    assert list(changed.tests_of("tests/machine/test_core.py")) == ["machine/test_core.py"]
    assert "machine/test_clusters.py" in changed.tests_of("tests/machine/machine_launch.py")


def test_what_changed_is_run_within_the_time() -> None:
    chosen, _ = changed.choose(["src/kernelwright/policies/scripted.py", "tests/policies/test_scripted.py"])
    assert chosen[:2] == [changed.ALWAYS, "policies/test_scripted.py"]
    assert changed.choose([])[0] == changed.subset()
    everything, why = changed.choose([f"tests/{name}" for name in changed.files()])
    assert sum(map(cost, everything)) <= changed.BUDGET and "left to `make test`" in why
