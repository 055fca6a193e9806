"""Which released model is best, and nothing else: by the same grid, nonce, journal and certificate as a noised sum."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.questions import parse
from fieldfare.schema import Schema
from fieldfare_client import questions as node_questions
from fieldfare_flower.messages import UPDATE, Occasion
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.looks import Offer, look
from fieldfare_server.evidence.residual_test import run_residual_test
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.pricing import price_with_model
from fieldfare_server.run.round.aggregation import Contribution
from fieldfare_server.run.round.answers import ChosenSum
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import JOINED_ONCE, USERS, LyingGrid, home, plan
from support.liars import drop, error, values
from support.questions import put
from support.refusals import coded

TINY = "support.federation:TinyTask"
ROOT = Path(__file__).parents[3]


def asked(models: list[str], adjacency: str = "zero_out", noise: float = 0.2, **more: Any) -> Asked:
    question = {"kind": "choose", "measure": "loss", "models": models, "high": 50, "shows": "best", **more}
    run = {"task": TINY, "cohort": USERS, "min_reports": 4, "round_timeout": 5.0}
    privacy = {"population": "people", "noise_multiplier": noise, "delta": 1e-5, "adjacency": adjacency}
    return Asked.of({"question": question, "run": run, "privacy": privacy})


@pytest.mark.parametrize("kind", ["choose", "items"])
def test_a_masked_sum_of_an_answer_that_is_no_sum_is_refused(kind: str) -> None:
    """All scores were released, noised, under a statement that none is shown."""
    ask = asked(["a", "b"])
    if kind == "items":
        ask = ask.model_copy(update={"question": parse({"kind": "items", "leak": 1e-7})})
    table = ask.plan_for_nodes().model_dump(mode="json", exclude_none=True)
    price_with_model(Plan.parse(table))
    masked = Plan.parse({**table, "aggregation": {"kind": "masked", "least_nodes": 2}})
    with pytest.raises(BadInput, check=coded("unsupported", "aggregation.kind = 'masked'")):
        price_with_model(masked)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StateDirectory, list[str]]:
    """A ledger and two runs: the second one's model is far worse."""
    state, runs = home(tmp_path), []
    for _ in range(2):
        with Session.begin(state, plan(**JOINED_ONCE), identity_is_stable=True) as session:
            FieldfareStrategy(session).start(LyingGrid(2))
            runs.append(session.account.id)
    file = state.root / runs[1] / "model.safetensors"
    save_file({name: value + 3.0 for name, value in load_file(file).items()}, file)
    monkeypatch.setattr(node_questions, "_models", {})
    return state, runs


def test_the_best_of_two_models_is_named_charged_and_verified(trained: tuple[StateDirectory, list[str]]) -> None:
    state, runs = trained
    run = put(state, asked(runs), LyingGrid(3))
    with Ledger.open(state.ledger) as ledger:
        found = look(ledger, run)
        (best,) = found.answer
        assert best.name == f"{runs[0]}, below the best mean by"
        assert best.value == 0.0
        assert best.high is not None
        assert 0 < best.high < 50
        # The charge is that of Gaussian noise of the multiplier .2.
        assert ledger.run(run).spent.gdp == pytest.approx(5.0, rel=1e-3)
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok
        (committed,) = ledger.rounds(run).items
        released = np.asarray(committed.statistics["released"]) * USERS
        np.testing.assert_allclose(sorted(released), [0, 1], atol=1e-6)


def test_both_checkers_accept_its_certificate(trained: tuple[StateDirectory, list[str]], tmp_path: Path) -> None:
    state, runs = trained
    run, written = put(state, asked(runs), LyingGrid(2)), tmp_path / "certificate.json"
    with Ledger.open(state.ledger) as ledger, ledger.snapshot() as snapshot:
        written.write_bytes(certificate(snapshot, run, state))
    for command in ([sys.executable, "docs/check_certificate.py"], ["node", "docs/check_certificate.mjs"]):
        checked = subprocess.run([*command, written], capture_output=True, text=True, check=False, cwd=ROOT)
        assert checked.stdout.startswith("yes"), checked


def test_the_law_of_a_session_is_the_one_that_is_charged(
    trained: tuple[StateDirectory, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exponent's rate times the sums is the range of the charge over the width of one user's numbers."""
    state, runs = trained
    drawn: list[tuple[list[int], Any]] = []

    def noted(cells: list[int], rate: Any, noise: Any, *, row: int) -> int:
        drawn.append((cells, rate))
        return 1

    monkeypatch.setattr("fieldfare_server.run.round.answers.exponential_choice", noted)
    sums: list[Any] = []
    run = put(state, asked(runs, noise=2.0), LyingGrid(2), sums)
    ((cells, rate),), total = drawn, sums[-1]
    assert isinstance(total, ChosenSum)
    spacing = total.grid.spacing  # type: ignore[union-attr]
    scores = np.asarray(cells) * spacing
    assert scores[0] > scores[1]
    # mu = 1 / 2 has range .80015; a user's two numbers are at most sqrt(2) apart.
    assert float(rate) / spacing == pytest.approx(0.800154 / np.sqrt(2), rel=1e-4)
    assert float(rate) / spacing < 0.800154 / np.sqrt(2)
    with Ledger.open(state.ledger) as ledger:
        assert look(ledger, run).answer[0].name.startswith(runs[1])  # what was drawn is shown


def test_under_replace_one_it_is_charged_twice_and_drawn_as_before(
    trained: tuple[StateDirectory, list[str]],
) -> None:
    _, runs = trained
    mus = [
        price_with_model(asked(runs, adjacency).plan_for_nodes()).loss.mu for adjacency in ("zero_out", "replace_one")
    ]
    assert mus[1] == pytest.approx(2 * mus[0], rel=1e-6)


HOSTILE = {
    "not a number": (values(lambda a: a * np.float32(np.nan)), False),
    "infinite": (values(lambda a: a + np.float32(np.inf)), False),
    "no answer": (drop(UPDATE), False),
    "an error": (error(2), False),
    "out of bounds": (values(lambda a: a * 0 + np.array([[1e30, -1e30]], np.float32)), True),
    "all on one": (values(lambda a: a * 0 + np.array([[8.0, 0.0]], np.float32)), True),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_is_one_reply_of_as_many_users(kind: str, trained: tuple[StateDirectory, list[str]]) -> None:
    """Of three nodes one lies: its reply is dropped and counted, or each number is cut to its users' box."""
    state, runs = trained
    lie, is_used = HOSTILE[kind]
    liar = next(iter(LyingGrid(3).get_node_ids()))
    honest: list[Any] = []
    put(state, asked(runs, noise=0.5), LyingGrid(3), honest)
    sums: list[Any] = []
    put(state, asked(runs, noise=0.5), LyingGrid(3, {liar: lie}), sums)
    total = sums[-1]
    assert sum(total.rejects.values()) == 1
    assert (total.users == USERS) == is_used
    assert np.abs(total.total).max() <= total.users / np.sqrt(2) * (1 + 1e-6)
    assert np.abs(total.total - honest[-1].total).max() <= 2 * 8 / np.sqrt(2) * (1 + 1e-6)


def test_one_users_reply_is_cut_to_the_box_and_not_to_the_norm() -> None:
    """A vector of norm 1 with all of it in one number would move two numbers further apart than is charged."""
    question = parse({"kind": "choose", "models": ["a", "b", "c", "d"], "shows": "best"})
    lie = np.array([1.0, 0.0, 0.0, -1.0]) / np.sqrt(2)

    def read(content: Any, sent: int) -> Contribution:
        return Contribution(1, (), lambda position: iter([lie.copy()]), clipped_by_node=False)

    total = ChosenSum(
        Schema(("weight",), ((1, 4),)), Occasion("run", 0, 1), 1.0, reader=read, question=question, noise_multiplier=1.0
    )
    assert total.add(None, 1)  # type: ignore[arg-type]
    np.testing.assert_allclose(total.total, [0.5, 0, 0, -0.5])


@pytest.mark.parametrize(
    "change",
    [
        {"run": {"rounds": 2}, "participation": {"scheme": "min-separation", "separation": 1, "max_participations": 2}},
        {"privacy": {"rounding": "none"}},
        {"privacy": {"rounding": "discrete"}},
        {"clipping": {"kind": "flat", "norm": 2.0}},
        {"mechanism": {"kind": "tree"}},
    ],
)
def test_a_plan_that_would_not_be_charged_by_it_does_not_begin(
    change: dict[str, Any], trained: tuple[StateDirectory, list[str]]
) -> None:
    state, runs = trained
    table = asked(runs, noise=0.5).plan_for_nodes().model_dump(mode="json", exclude_none=True)
    for name, part in change.items():
        table[name] = part if name in ("participation", "mechanism", "clipping") else {**table[name], **part}
    with Ledger.open(state.ledger) as ledger:
        before = ledger.population("people").spent_epsilon
    with pytest.raises(BadInput) as refused:
        Session.begin(state, Plan.parse(table), identity_is_stable=True)
    assert refused.value.code == "question-as-planned"
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").spent_epsilon == before


def test_its_residual_is_not_tested_as_if_it_were_noise(trained: tuple[StateDirectory, list[str]]) -> None:
    state, runs = trained
    run = put(state, asked(runs), LyingGrid(2))
    with Ledger.open(state.ledger) as ledger, pytest.raises(BadInput) as refused:
        run_residual_test(ledger, run, actor="test", numbers=1000, root=state.root)
    assert refused.value.code == "no-residual"


def test_the_offer_says_how_far_below_the_best_it_may_be() -> None:
    plans = [asked(["a", "b"], noise=noise).plan_for_nodes() for noise in (0.2, 2.0)]
    offers = [Offer.of(each, price_with_model(each)) for each in plans]
    assert offers[0].widths[0][2] < offers[1].widths[0][2] <= 50
    assert "below the best" in str(offers[0])
