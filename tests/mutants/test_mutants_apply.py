"""Every mutant still applies, and names tests that exist: `make mutants` runs them, which takes minutes."""

from __future__ import annotations

import re

import pytest
from run import ROOT, SOURCES, Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_applies_once_and_names_tests(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.file.startswith((*(f"{folder}/" for folder in SOURCES), "docs/check_")), "no copy of it is run"
    assert mutant.old != mutant.new
    assert mutant.harm
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name.partition('[')[0]}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), test
