"""A stored result names the code that makes its bits; its change is seen, and nothing that makes bits is left out."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from fieldfare.plan import Plan

ROOT = Path(__file__).parents[2]
NOW = {"noise": "a", "training": "b", "sampling": "c", "price": "d"}


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/claims"))


@pytest.fixture
def bits(monkeypatch: pytest.MonkeyPatch) -> Any:
    return importlib.import_module("bits")


def test_words_about_code_do_not_count_and_code_does(bits: Any) -> None:
    text = '"""Says\nit."""\n\ndef f():\n    """Do."""\n    # so\n    return "x"  # and so\n'
    assert bits.code_of(text) == 'def f():\n    return "x"'
    assert bits.code_of(text.replace('"x"', '"y"')) != bits.code_of(text)
    assert bits.code_of('x = """\nkept\n"""\n') == 'x = """\nkept\n"""'


def test_a_change_of_a_part_is_a_change_of_its_digest_alone(bits: Any, tmp_path: Path) -> None:
    for part, patterns in bits.MAKES.items():
        path = bits.files_of(patterns)[0]
        copy = tmp_path / part / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True)
        copy.write_text(path.read_text())
        before = bits.digests(tmp_path / part)
        copy.write_text(copy.read_text() + "# a word\n")
        bits.digests.cache_clear()
        assert bits.digests(tmp_path / part) == before
        copy.write_text(copy.read_text() + "x = 1\n")
        bits.digests.cache_clear()
        after = bits.digests(tmp_path / part)
        assert [name for name in after if after[name] != before[name]] == [part]
    bits.digests.cache_clear()


@pytest.mark.parametrize("scheme", ["min-separation", "poisson"])
def test_what_a_run_executes_makes_its_bits_or_is_known_not_to(scheme: str, bits: Any) -> None:
    """Every file of the product that is entered while a run is made stands in one of the two lists, and in one only."""
    harness, sampled = importlib.import_module("harness"), scheme == "poisson"
    apart = {"scheme": "min-separation", "separation": 2, "max_participations": 2}
    table = {
        "privacy": {
            "population": "p",
            "epsilon": 8.0,
            "delta": 1e-5,
            "adjacency": "add_remove" if sampled else "zero_out",
        },
        "run": {"task": "digits", "rounds": 3, "cohort": 4, "evaluate_every": 3},
        "participation": {"scheme": "poisson", "rate": 0.1} if sampled else apart,
        "mechanism": {"kind": "independent"} if sampled else {"kind": "nu", "nu": "auto"},
        "clipping": {"kind": "flat", "norm": 1.0},
    }
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        record, _ = harness.run(Plan.parse(table), 1)
    finally:
        sys.setprofile(before)
    product = {Path(name).relative_to(ROOT).as_posix() for name in entered if name.startswith(f"{ROOT}/")}
    product = {
        name for name in product if name.startswith(("shared/", "server/", "client/")) and "__init__" not in name
    }
    makes = {name: [part for part in bits.MAKES if any(fnmatch(name, p) for p in bits.MAKES[part])] for name in product}
    besides = {name for name in product if any(fnmatch(name, pattern) for pattern in bits.BESIDES)}
    assert {name for name, parts in makes.items() if len(parts) + (name in besides) != 1} == set()
    assert {part for parts in makes.values() for part in parts} == set(bits.MAKES)
    assert record["code"] == bits.digests()
    assert len(record["model"]) == 16


def test_a_result_is_stale_by_part_and_its_page_says_so(
    bits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bits, "digests", lambda: NOW)
    monkeypatch.setattr(bits, "RESULTS", tmp_path)
    page = SimpleNamespace(file=SimpleNamespace(src_path="evidence/defaults.md"))

    def said(*runs: Any) -> str:
        (tmp_path / "strangers.json").write_text(json.dumps({"cells": {"x": {"scores": [0.5], "runs": runs}}}))
        return str(bits.on_page_markdown("text", page))

    run = {"scores": {"accuracy": 0.5}, "code": NOW}
    assert "makes the bits of these results again" in said(run)
    assert "Stale" in said(run, {**run, "code": {**NOW, "noise": "z"}})
    assert bits.stale() == {"strangers.json": ["noise"]}
    said({"scores": {"accuracy": 0.5}})
    assert bits.stale() == {"strangers.json": [bits.UNNAMED]}
    other = SimpleNamespace(file=SimpleNamespace(src_path="index.md"))
    assert bits.on_page_markdown("text", other) == "text"


@pytest.mark.parametrize("equal", [True, False])
def test_every_cell_made_again_is_recorded_if_equal_to_the_bit_and_holds_for_that_code_alone(
    equal: bool, bits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerun, harness = importlib.import_module("rerun"), importlib.import_module("harness")
    path = tmp_path / "claims/training-nu.json"
    path.parent.mkdir()
    run = {"seed": 1000, "scores": {"s": 0.1}, "code": {**NOW, "noise": "z"}, "versions": "v"}
    cells = {
        name: {"choice": 0, "runs": [{**run, "model": name}, {**run, "seed": 1001, "model": "n"}]} for name in "xy"
    }
    path.write_text(json.dumps({"cells": cells}))
    today = dict(NOW)
    monkeypatch.setattr(bits, "digests", lambda: today)
    monkeypatch.setattr(bits, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "RESULTS", path.parent)
    made = [harness.Cell(name, ({},)) for name in "xy"]
    study = harness.Study("training-nu", None, "s")
    monkeypatch.setattr(rerun, "cells_of", lambda name, stored, labels: (study, dict(zip(labels, made, strict=True))))

    def trained(self: Any, cell: Any, choice: Any, part: str, seed: int) -> dict[str, Any]:
        model = cell.label if equal or cell.label == "x" else "n"  # what another seed gave is not equal
        return {**run, "code": NOW, "model": model, "seed": seed, "commit": "c", "versions": "w"}

    monkeypatch.setattr(harness.Runs, "made", trained)
    monkeypatch.setattr(sys, "argv", ["rerun.py", "training-nu", "--record"])
    assert bits.stale() == {"claims/training-nu.json": ["noise"]}
    with pytest.raises(SystemExit) as ended:
        rerun.main()
    stored = json.loads(path.read_text())
    assert ended.value.code == (0 if equal else 1)
    assert stored["cells"] == cells
    assert ("again" in stored) == equal
    assert bits.stale() == ({} if equal else {"claims/training-nu.json": ["noise"]})
    page = SimpleNamespace(file=SimpleNamespace(src_path="evidence/training.md"))
    said = "all equal to the bit: `claims/training-nu.json` 2"
    assert (said in bits.on_page_markdown("text", page)) == equal
    path.write_text(json.dumps({**stored, "splits": {"100x500": {"x": cells["x"]}}}))  # which nobody made again
    assert bits.stale() == {"claims/training-nu.json": ["noise"]}
    today["price"] = "z"
    assert bits.stale() == {"claims/training-nu.json": ["noise", "price"]}
    assert said not in bits.on_page_markdown("text", page)


@pytest.mark.parametrize("own", ["", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"])
def test_kernels_round_alike_on_processors_of_two_makers(own: str) -> None:
    """Asked for before PyTorch is loaded, and named by each run. With MKL's or oneDNN's own choice an Intel and an AMD
    processor give other bits, and a run that had it must not be called equal in its versions."""
    program = "import harness, torch; print(torch.backends.cpu.get_cpu_capability()); print(harness._device())"
    asked = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
    environment = {key: value for key, value in os.environ.items() if key not in asked} | ({own: "AUTO"} if own else {})
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "benchmarks/claims", env=environment, capture_output=True, text=True
    )
    capability, device = done.stdout.split("\n")[:2]
    assert capability not in ("", "AVX512"), done.stderr
    assert device.endswith(f"with {capability} of its own choice" if own else f"with portable {capability}")


def test_a_run_made_again_is_equal_to_the_bit_or_inside_the_interval_of_another_draw() -> None:
    """One more of 0.1, 0.2, 0.3 is within 0.2 +- 9.925 x 0.1 x sqrt(4 / 3) = 1.146 (Student's t, 99 %, two degrees)."""
    compared = importlib.import_module("rerun").compared
    runs = [
        {"seed": seed, "scores": {"s": value}, "model": "m", "code": NOW, "versions": "v"}
        for seed, value in enumerate((0.1, 0.2, 0.3))
    ]
    cell = {"runs": runs}
    assert compared(runs[0], cell, "s") == (True, "0.100000, stored 0.100000: equal to the bit")
    assert not compared({**runs[0], "model": "n"}, cell, "s")[0]
    elsewhere = {**runs[0], "code": {**NOW, "noise": "z"}, "model": "n"}
    for value, inside in ((1.34, True), (1.35, False), (-0.94, True), (-0.95, False)):
        agrees, said = compared({**elsewhere, "scores": {"s": value}}, cell, "s")
        assert (agrees, said.endswith("other noise since")) == (inside, True)
    assert "other versions since" in compared({**runs[0], "versions": "w", "model": "n"}, cell, "s")[1]
