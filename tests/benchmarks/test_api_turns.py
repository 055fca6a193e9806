"""The benchmark of the service measures two checkouts in turns, each with its code, and shows them side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

FAKE = """
import json, os, pathlib, sys
here = pathlib.Path(__file__).parents[1]
assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(here / "shared")
counter = here / "counter"
turn = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(turn + 1))
values = json.loads((here / "values").read_text())
print(json.dumps({"runs": int(sys.argv[1]), "stores": {"sqlite": {"p50_ms": {"/bare": values[turn]}, "walk": "all"}}}))
"""


def test_two_checkouts_take_turns_and_each_figure_is_the_median(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])
    import api

    trees = []
    for name, values in (("early", [9.0, 1.0, 2.0]), ("late", [3.0, 5.0, 4.0])):
        tree = tmp_path / name
        (tree / "benchmarks").mkdir(parents=True)
        (tree / "benchmarks" / "api.py").write_text(FAKE)
        (tree / "values").write_text(json.dumps(values))
        trees.append(tree)
    monkeypatch.setattr(api, "version", lambda tree: tree.name)
    result = api.take_turns(trees, ["7"], 3)
    assert result["runs"] == 7
    assert list(result["stores"]) == ["sqlite, early", "sqlite, late"]
    assert [store["p50_ms"]["/bare"] for store in result["stores"].values()] == [2.0, 4.0]
    assert result["stores"]["sqlite, late"]["walk"] == "all"
