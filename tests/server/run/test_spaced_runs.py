"""b-min-sep, and banded noise with random allocation: drawn, certified, enforced, verified and shown."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text, update

from fieldfare.accounting import certification
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.participation import BMinSep
from fieldfare_server.evidence.guarantee import guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import models
from fieldfare_server.planning import what_if as what_ifs
from fieldfare_server.planning.what_if import what_if
from fieldfare_server.run.presence.selection import Selector
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from oracles.patterns import min_sep
from support.federation import USERS, LyingGrid, home, plan
from support.refusals import coded
from support.secret_runs import cohorts_of, never, require_callable, require_same_draws_after_a_crash, words_of

SPACED: dict[str, Any] = {"scheme": "b-min-sep", "separation": 2, "rate": 0.5}
ALLOCATED: dict[str, Any] = {"scheme": "random-allocation", "bins": 3}
BOTH = pytest.mark.parametrize("participation", [SPACED, ALLOCATED], ids=["spaced", "allocated"])


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "SAMPLES", (1 << 15, 1 << 15))
    monkeypatch.setattr(certification, "_PILOT", 1 << 13)


def banded(participation: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "privacy": {"population": "people", "noise_multiplier": 4.0, "delta": 1e-5, "adjacency": "add_remove"},
        "participation": participation,
        "mechanism": {"kind": "banded", "bands": 2},
        "run__noise_seed": None,
        "run__min_reports": None,
        "run__cohort": 8,
        **changes,
    }


# -- the draws --------------------------------------------------------------------------------------------------------


def test_b_min_sep_draws_by_the_stated_law() -> None:
    """Every pattern of seven rounds, 40 000 users. chi^2 with m degrees of freedom is above m + 6.5 sqrt(2 m) + 30
    with probability below 1e-7; the key is fixed.
    """
    chosen = cohorts_of(BMinSep(3, 0.4), 7, np.arange(40_000))
    rounds = [[] for _ in range(40_000)]
    for t, cohort in enumerate(chosen):
        for user in cohort.tolist():
            rounds[user].append(t)
    law = min_sep(7, 3, 0.4)
    counts = Counter(map(tuple, rounds))
    assert counts.keys() <= law.keys()
    chi = sum((counts[pattern] - 40_000 * p) ** 2 / (40_000 * p) for pattern, p in law.items())
    assert chi < len(law) + 6.5 * np.sqrt(2 * len(law)) + 30


def test_b_min_sep_at_rate_one_is_a_bin_for_the_run_and_without_a_pause_poisson() -> None:
    chosen = cohorts_of(BMinSep(5, 1.0), 12, np.arange(1000))
    assert sorted(np.concatenate(chosen[:5]).tolist()) == list(range(1000))
    assert all(np.array_equal(chosen[t], chosen[t - 5]) for t in range(5, 12))
    # 4000 coins of .3: 1200, with a standard deviation of 29.
    free = np.concatenate(cohorts_of(BMinSep(1, 0.3), 4, np.arange(1000)))
    assert abs(free.size - 1200) < 6 * 29


def test_draws_of_b_min_sep_need_no_history() -> None:
    """Whoever was there before, whatever round is asked for first, and however often: the same cohorts."""
    many = cohorts_of(BMinSep(3, 0.4), 9, np.arange(1000))
    for users in (np.arange(10), np.arange(1, 1000, 2)):
        found = cohorts_of(BMinSep(3, 0.4), 9, users)
        assert all(np.array_equal(a, b[np.isin(b, users)]) for a, b in zip(found, many, strict=True))
    selector, rng = Selector(BMinSep(3, 0.4), 9, 1, words=words_of(1)), np.random.default_rng(0)
    for t, users in ((5, 20), (5, 1000), (2, 700), (8, 1000), (8, 30)):
        assert np.array_equal(selector.select(t, np.arange(users), never, rng, rng.random), many[t][many[t] < users])


def test_coins_belong_to_a_user_and_a_round_and_to_no_attempt_at_it(tmp_path: Path) -> None:
    """Cryptographic words of the run's key. A void round is drawn as before, and takes no other round's coins."""
    with Session.begin(home(tmp_path, adjacency="add_remove"), plan(**banded(SPACED)), True) as session:
        session.cohorts.roster.settle(LyingGrid(3), 5.0)
        session.cohorts.roster.register()
        users = session.cohorts.roster.available()
        noise = SecureNoise(session.files.key() if session.files else b"")

        def uniform(draw: str) -> np.ndarray:
            return (np.frombuffer(noise.bytes(8 * USERS, row=0, stream=draw), "<u8") >> np.uint64(11)) * 2.0**-53

        # From the first round with probability 1 / (1 + .5), else from the second.
        free = np.where(uniform("start") < 1 / 1.5, 0, 1)
        for t in range(6):
            drawn = (free <= t) & (uniform(f"coins.{t}") < 0.5)
            free[drawn] = t + 2
            assert np.array_equal(session.cohorts.select(t, users), np.flatnonzero(drawn))
            assert np.array_equal(session.cohorts.select(t, users, voids=2), np.flatnonzero(drawn))


def test_b_min_sep_needs_secret_words() -> None:
    with pytest.raises(BadInput, check=coded("not-given", "words")):
        Selector(BMinSep(2, 0.5), 6, 1)


# -- a run ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[SPACED, ALLOCATED], ids=["spaced", "allocated"])
def done(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[StateDirectory, str, dict[str, Any]]:
    state = home(tmp_path, adjacency="add_remove")
    with Session.begin(state, plan(**banded(request.param)), True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    return state, session.account.id, request.param


def test_a_run_is_certified_from_a_seed_in_the_journal_verified_and_shown(
    done: tuple[StateDirectory, str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, run_id, participation = done
    with Ledger.open(state.ledger) as ledger:
        with ledger.database.read() as connection:
            rows = connection.execute(text("select action, run, body from audit order by id")).mappings().all()
        own = [row for row in rows if row["run"] == run_id]
        assert [row["action"] for row in own[:2]] == ["run.certify", "run.start"]
        (curve,) = json.loads(json.loads(own[1]["body"])["planned"])["certified"]
        assert curve["seed"] == json.loads(own[0]["body"])["seed"]
        # What a run writes while it goes on names no user and no cohort.
        assert not any("user-" in row["body"] for row in own)
        report = verify(ledger, state.root, recompute=recharge)
        assert report.ok, report.fault
        assert report.checked["charges"] == 6
        run = ledger.run(run_id)
        assert run.spent == run.planned
        assert run.spent_epsilon < run.spent.without_amplification().epsilon(1e-5)
        card = guarantee(run, ledger.population("people"), plan_facts(run, state.root))
        monkeypatch.setattr(what_ifs, "_PRICES", {})
        monkeypatch.setattr(what_ifs, "SAMPLES", (1 << 15, 1 << 15))
        wider, longer = (
            what_if(run.plan, changes, ledger) for changes in ({"cohort": 12}, {"rounds": what_ifs.CHAINED_ROUNDS + 1})
        )
    facts = {fact.name: fact.value for fact in card.facts}
    assert participation["scheme"] in facts["Participation"]
    law = "after a pause of 1 rounds with probability 0.5" if participation is SPACED else "drawn afresh for each block"
    assert law in facts["Sampling assumption"]
    assert "counts as present" in facts["Sampling assumption"]
    assert "65,536 samples" in facts["Bound used"]
    assert wider.bound == "certified with fewer samples"
    assert wider.cost.certificate is not None
    assert wider.cost.certificate.curve.samples == (1 << 15, 1 << 15)
    assert wider.cost.epsilon < wider.cost.loss.without_amplification().epsilon(1e-5)
    assert longer.bound == "without amplification"
    assert longer.cost.certificate is None
    sampler = wider.cost.plan.participation
    assert (sampler.separation, sampler.rate, sampler.bins) == (
        (2, 1.0, None) if participation is SPACED else (None, None, 2)
    )


def test_another_law_of_the_same_seed_is_found(
    done: tuple[StateDirectory, str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that draws its samples from half of the true law's inner products."""
    state, _, _ = done
    honest = certification.law_of
    monkeypatch.setattr(certification, "law_of", lambda *setting: honest(*setting).at(0.99))
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
    assert report.fault is not None


def test_a_changed_point_in_the_table_is_found(done: tuple[StateDirectory, str, dict[str, Any]]) -> None:
    state, run_id, _ = done
    with Ledger.open(state.ledger) as ledger:
        planned = ledger.run(run_id).planned.to_json().replace('"failure":5e-10', '"failure":4e-10')
        with ledger.database.engine.begin() as connection:
            connection.execute(update(models.runs).values(planned=planned))
        assert verify(ledger, state.root, recompute=recharge).fault is not None


def test_a_resumed_run_keeps_its_draws(tmp_path: Path) -> None:
    require_same_draws_after_a_crash(home(tmp_path, adjacency="add_remove"), plan(**banded(SPACED)))


@BOTH
def test_real_people_must_be_callable(participation: dict[str, Any], tmp_path: Path) -> None:
    state = home(tmp_path, simulated=False, adjacency="add_remove")
    require_callable(state, participation, lambda way, **changes: plan(**banded(way, **changes)))


def test_more_bands_than_the_pause_are_refused_before_anything_is_reserved(tmp_path: Path) -> None:
    state = home(tmp_path, adjacency="add_remove")
    for participation, what in ((SPACED, ("3 bands", "balls-in-bins")), (ALLOCATED, ("banded",))):
        with pytest.raises(BadInput, check=coded("unsupported", "participation.scheme", *what)):
            Session.begin(state, plan(**banded(participation, mechanism={"kind": "nu", "restart_every": 3})), True)
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").committed_epsilon == 0
