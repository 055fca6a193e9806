"""Two checkers that share no code, nor a language, agree on honest certificates and on forged ones."""

from __future__ import annotations

import copy
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import test_certificate
from test_certificate import (
    CHECKER,
    CUT,
    KINDS,
    OTHERS,
    REDERIVED,
    SAID,
    Certificate,
    Certificates,
    all_alterations,
    as_written_by_d6c95ba,
    certificate_of,
    certificates,
    certified,
    checker,
    claims_less,
    lower,
    relaid,
    rows_of,
    sealed,
    verdict,
    with_value,
)

from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

__all__ = ["certificates"]
"""A fixture."""

SECOND = CHECKER.with_suffix(".mjs")
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
QUICK = ("nu", "poisson", "secret participation", "balls in bins")
EACH_KIND = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in KINDS]


@pytest.fixture(scope="module", params=EACH_KIND)
def honest(request: pytest.FixtureRequest, certificates: Certificates) -> tuple[str, Certificate]:
    """The name of a kind, and the certificate of a run of it."""
    return request.param, certificates[request.param]


def second(made: Certificate, folder: Path, *key: str) -> str:
    """What the second checker says of `made`."""
    file = folder / "certificate.json"
    file.write_text(json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    assert NODE is not None
    command = [NODE, str(SECOND), str(file), *key]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert checked.returncode == (0 if checked.stdout.startswith("yes: ") else 1), checked.stderr
    return checked.stdout.rstrip("\n")


Second = Callable[[Certificate], str]


@pytest.fixture(scope="module")
def second_of_many() -> Iterator[Second]:
    """What the second checker says of one certificate after another, in one process."""
    assert NODE is not None
    many = """
        import { createInterface } from "node:readline";
        const { check } = await import(process.argv[2]);
        for await (const line of createInterface({ input: process.stdin })) {
          let said;
          try { said = `yes: ${check(line)}`; } catch (error) { said = `no: ${error.message}`; }
          console.log(said.split("\\n")[0]);
        }
    """
    command = [NODE, "--input-type=module", "--eval", many, "", SECOND.as_uri()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, told = process.stdin, process.stdout

        def say(made: Certificate) -> str:
            given.write(json.dumps(made, sort_keys=True, separators=(",", ":")) + "\n")
            return told.readline().rstrip("\n")

        yield say
        process.kill()  # a worker that a simulation forked meanwhile may hold the pipe, whose end would not come


@pytest.mark.parametrize("what", REDERIVED)
def test_it_too_refuses_rows_that_contradict_each_other(
    what: str, certificates: Certificates, second_of_many: Second
) -> None:
    kind, _, forge = REDERIVED[what]
    honest = certificates[kind]
    assert second_of_many(sealed(honest, rows_of(honest))).startswith("yes: ")
    assert second_of_many(forge(honest)).startswith("no: ")


@pytest.mark.parametrize(
    ("kind", "what", "forge"), test_certificate.FORGERIES, ids=[f"{k}: {w}" for k, w, _ in test_certificate.FORGERIES]
)
def test_it_too_refuses_a_forgery(
    kind: str,
    what: str,
    forge: Callable[[Certificate], None],
    certificates: Certificates,
    second_of_many: Second,
) -> None:
    forged = copy.deepcopy(certificates[kind])
    forge(forged)
    assert second_of_many(forged).startswith("no: "), what


@pytest.mark.parametrize("kind", ["balls in bins", "b-min-sep", "banded random allocation"])
def test_both_find_without_samples_what_their_samples_do_not(
    kind: str, certificates: Certificates, second_of_many: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One point is a little below what the exact test reaches, which is a little below the truth."""
    made, reached = certificates[kind], []
    checker()
    sampled = sys.modules["check_sampled"]
    exactly = sampled.one_test
    with monkeypatch.context() as patch:
        patch.setattr(sampled, "one_test", lambda *given: reached.append(exactly(*given)) or 0.0 * given[2])
        verdict(made)

    def below(points: list[list[float]]) -> list[list[float]]:
        return [[e, 0.998 * reached[0][2] if i == 2 else delta] for i, (e, delta) in enumerate(points)]

    rows = [
        {**row, "body": certified(below)(row["body"]) if row["action"] == "run.start" else row["body"]}
        for row in rows_of(made)
    ]
    forged = sealed(made, rows)
    with monkeypatch.context() as patch:
        patch.setattr(sampled, "one_test", lambda claim, c, epsilons: 0.0 * epsilons)
        assert verdict(forged).startswith("yes: "), "the samples alone"
    assert verdict(forged) == "no"
    assert second_of_many(forged).startswith("no: one exact test")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_no_alteration_lowers_what_the_second_says(
    kind: str, certificates: Certificates, second_of_many: Second
) -> None:
    """All of them; where each that is believed is composed or sampled anew, a draw."""
    made = certificates[kind]
    honest = second_of_many(made)
    assert honest.startswith("yes: ")
    every = all_alterations(made)
    if "gram" not in made["theorems"]:
        every = random.Random(kind).sample(every, 200)
    for path, value in every:
        assert not claims_less(second_of_many(with_value(made, path, value)), honest), (path, value)


def test_both_say_the_same_of_an_honest_certificate(honest: tuple[str, Certificate], tmp_path: Path) -> None:
    _, made = honest
    one, other = SAID.fullmatch(verdict(made)), SAID.fullmatch(second(made, tmp_path))
    assert one is not None
    assert other is not None
    assert one.group(1, 2, 3, 5) == other.group(1, 2, 3, 5)
    assert float(one[4]) == pytest.approx(float(other[4]), rel=1e-5)
    assert second(made, tmp_path, made["key"]).startswith("yes: ")


def changed(*path: str, by: Callable[[Any], Any]) -> Callable[[Certificate], Certificate]:
    def forge(made: Certificate) -> Certificate:
        inner: Any = made
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = by(inner[path[-1]])
        return made

    return forge


def another_row(made: Certificate) -> Certificate:
    made["rows"][1][1] = "somebody else"
    return made


def another_digit(made: Certificate) -> Certificate:
    """A digit of the certified curve, or of the charge, in the row that starts the run."""
    (start,) = (row for row in made["rows"] if row[0] == "run.start")
    start[3] = start[3].replace("9", "8", 1)
    return made


def signed_by_another(made: Certificate) -> Certificate:
    """Rows, digest and signature fit each other, but the certificate names the ledger's key."""
    return {**sealed(made, rows_of(made)), "key": made["key"]}


FORGERIES: dict[str, Callable[[Certificate], Certificate]] = {
    "a row dropped": changed("rows", by=lambda rows: [*rows[:4], *rows[5:]]),
    "the last row dropped": changed("rows", by=lambda rows: rows[:-1]),
    "a row changed": another_row,
    "a digit in a row": another_digit,
    "half the price": changed("price", "mu_squared", by=lambda square: square / 2),
    "twice the noise": changed("noise", "multiplier", by=lambda sigma: 2 * sigma),
    "cells that no log names": changed("price", by=lambda price: {**price, "discrete": {"scale": 7, "values": 1}}),
    "a lower epsilon": changed("epsilon", "hi", by=lambda e: e * (1 - 1e-5)),
    "another theorem": changed("theorems", by=lambda names: names[1:]),
    "another plan": changed("plan", by=lambda text: text.replace('"rounds":6', '"rounds":5')),
    "signed with another key": signed_by_another,
    "a node too many": changed("others", by=lambda nodes: [*nodes, "00" * 32]),
}


def test_both_refuse_forgeries(honest: tuple[str, Certificate], tmp_path: Path) -> None:
    kind, made = honest
    for what, forge in FORGERIES.items():
        forged = forge(copy.deepcopy(made))
        assert forged != made, what
        assert verdict(forged) == "no", (kind, what)
        assert second(forged, tmp_path).startswith("no: "), (kind, what)


def test_both_refuse_less_than_the_rounds_cost_even_under_a_key(
    honest: tuple[str, Certificate], tmp_path: Path
) -> None:
    """The log itself says less than the mathematics, and is signed: only the second computation shows it."""
    kind, made = honest
    assert second(sealed(made, rows_of(made)), tmp_path).startswith("yes: ")
    if "certified" in made["theorems"]:
        rows = [
            {**row, "body": certified(lower)(row["body"]) if row["action"] == "run.start" else row["body"]}
            for row in rows_of(made)
        ]
        forged = sealed(made, rows)
    else:
        rows = rows_of(made)
        for row in rows:
            for name in {"price", "spent", "planned"} & set(row["body"]):
                loss = json.loads(row["body"][name])
                row["body"][name] = json.dumps({**loss, "mu_squared": loss["mu_squared"] * 0.99})
        forged = sealed({**made, "price": {**made["price"], "mu_squared": made["price"]["mu_squared"] * 0.99}}, rows)
        forged["epsilon"] = {"lo": 0.0, "hi": made["epsilon"]["hi"]}
    assert verdict(forged) == "no", kind
    said = second(forged, tmp_path)
    assert "cost more than was charged" in said or "one exact test reaches more than the curve" in said


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("kind", ["nu", "poisson", CUT])
def test_both_believe_a_run_that_was_stopped(kind: str, rounds: int, tmp_path: Path) -> None:
    """Of a sampled one the second checker asked for rows of noise that were never drawn, and for a round."""
    a_plan = plan(**KINDS[kind])
    state_dir = home(tmp_path, adjacency=a_plan.privacy.adjacency)
    with Session.begin(state_dir, a_plan, identity_is_stable=True) as session:
        strategy = FieldfareStrategy(session)
        for _ in range(rounds):
            strategy.run_round(LyingGrid(3))
        session.finish("stopped", "test")
    with Ledger.open(state_dir.ledger) as ledger, ledger.snapshot() as snapshot:
        made = json.loads(certificate(snapshot, session.account.id, state_dir))
    assert verdict(made).startswith("yes: ")
    assert second(made, tmp_path).startswith("yes: ")


def test_another_key_than_was_asked_for_is_refused(honest: tuple[str, Certificate], tmp_path: Path) -> None:
    assert second(honest[1], tmp_path, "00" * 32).startswith("no: ")


def test_both_compare_a_model_with_the_rounds(tmp_path: Path) -> None:
    made = json.loads(certificate_of("poisson", tmp_path))
    (file,) = tmp_path.rglob("model.safetensors")
    changed, relaid_one = tmp_path / "changed", tmp_path / "relaid"
    changed.write_bytes(relaid(file.read_bytes(), lambda part: part[::-1]))
    relaid_one.write_bytes(relaid(file.read_bytes()))
    assert "; the model of round 5" in second(made, tmp_path, "any", str(file))
    assert "; the model of round 5" in second(made, tmp_path, made["key"], str(relaid_one))
    assert second(made, tmp_path, "any", str(changed)) == "no: no round released this model"
    assert second(as_written_by_d6c95ba(made), tmp_path, "any", str(file)) == "no: no round released this model"
    assert "; noise not in the log" in second(as_written_by_d6c95ba(made), tmp_path)
