"""What `privacy.rounding` says is what a run does, what it is charged, and what the ledger tells."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fieldfare.accounting import PrivacyLoss, zcdp_epsilon
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, Interrupted
from fieldfare.names import RESOLUTION
from fieldfare.plan import Plan
from fieldfare_server.evidence.guarantee import BEYOND, FLOATING_POINT, ROUNDING, TOGETHER, guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded

KINDS = {"grid": {"kind": "nu", "nu": 0.1}, "discrete": {"kind": "tree", "estimator": "plain"}, "none": {"kind": "blt"}}


def rounded(rounding: str, **changes: object) -> Plan:
    return plan(privacy__rounding=rounding, mechanism=KINDS[rounding], **changes)


@pytest.mark.parametrize("rounding", KINDS)
@pytest.mark.parametrize("clipping", [{"kind": "flat", "norm": 0.5}, {"kind": "adaptive-quantile", "norm": 0.5}])
def test_a_run_is_resumed_bit_for_bit_and_says_what_was_in_force(
    rounding: str, clipping: dict[str, object], tmp_path: Path
) -> None:
    state_dir, a_plan = home(tmp_path), rounded(rounding, clipping=clipping)

    def stop(report: RoundReport) -> None:
        if report.round == 2:
            raise KeyboardInterrupt

    whole = Session.begin(state_dir, a_plan, identity_is_stable=True)
    with whole:
        FieldfareStrategy(whole).start(LyingGrid(3))
    broken = Session.begin(state_dir, a_plan, identity_is_stable=True)
    with pytest.raises(Interrupted), broken:
        FieldfareStrategy(broken, stop).start(LyingGrid(3))
    resumed = Session.resume(state_dir, broken.account.id, identity_is_stable=True)
    with resumed:
        FieldfareStrategy(resumed).start(LyingGrid(3))
    assert torch.equal(resumed.params, whole.params)
    assert resumed.released.clip == whole.released.clip
    with Ledger.open(state_dir.ledger) as ledger:
        run = ledger.run(resumed.account.id)
        applied = plan_facts(run, state_dir.root)
        people = ledger.population("people")
        facts = {fact.name: fact.value for fact in guarantee(run, people, applied).facts}
        statement = privacy_statement(ledger, run.id, state_dir.root).to_markdown()
        assert verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()]).ok
    assert facts["Rounding"] == ROUNDING[rounding]  # type: ignore[index]
    assert TOGETHER in statement
    assert (FLOATING_POINT["none"] in statement) == (rounding == "none")
    assert FLOATING_POINT["grid"] not in statement  # it is charged
    unpaid = {name: value for name, value in run.plan.items() if name != RESOLUTION}
    older = guarantee(run.model_copy(update={"plan": unpaid}), people, applied).not_covered
    assert (FLOATING_POINT["grid"] in older) == (rounding == "grid")
    assert float(facts["Noise multiplier"]) == 2.0
    assert run.spent.gaussian
    assert run.spent.rho == pytest.approx(run.planned.rho)


def test_what_no_number_of_the_noise_reaches_is_said(tmp_path: Path) -> None:
    """From so far away one world has outcomes that the other has not, and more probable than a hundredth of delta."""
    state_dir, first = home(tmp_path), plan(run__rounds=1, participation={"scheme": "single"})
    with Session.begin(state_dir, first, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    with Ledger.open(state_dir.ledger) as ledger:
        run, people = ledger.run(session.account.id), ledger.population("people")
    facts = plan_facts(run, state_dir.root)
    assert facts is not None
    for source, noise, delta, said in (
        ("aes-256-ctr", 0.5, 1e-6, False),
        ("aes-256-ctr", 0.1, 1e-6, True),
        ("aes-256-ctr", 0.2, 1e-18, True),
        ("philox-4x32-10", 0.5, 1e-6, False),
        ("philox-4x32-10", 0.18, 1e-6, True),
    ):
        privacy = {"population": "people", "noise_multiplier": noise, "delta": delta, "noise_source": source}
        cost = cost_of(plan(privacy=privacy, run__rounds=1, participation={"scheme": "single"}))
        reach = 13.7 if source == "aes-256-ctr" else 9.34
        beyond = math.erfc((reach - cost.loss.mu) / math.sqrt(2)) / 2  # the world without the user never shows it
        assert (beyond > 0.01 * delta) == said
        other = run.model_copy(update={"planned": cost.loss, "delta": delta})
        assert (BEYOND in guarantee(other, people, replace(facts, plan=cost.plan)).not_covered) == said


@pytest.mark.parametrize(
    ("noise", "privacy", "refused"),
    [
        (0.2, {}, False),
        (0.1, {}, True),
        (0.18, {"noise_source": "philox-4x32-10"}, True),
        (0.18, {"rounding": "none"}, True),
        (0.1, {"rounding": "discrete"}, False),
    ],
)
def test_real_people_are_promised_no_more_than_the_noise_reaches(
    tmp_path: Path, noise: float, privacy: dict[str, str], refused: bool
) -> None:
    """At multiplier .1 one round is (98, 1e-6) by its formula, and shows a user with probability 1e-4."""
    table = {"population": "people", "noise_multiplier": noise, "delta": 1e-6, **privacy}
    weak = plan(privacy=table, run__rounds=1, run__noise_seed=None, participation={"scheme": "single"})
    for simulated in (True, False):
        state_dir = home(tmp_path / str(simulated), simulated=simulated, epsilon=1000)
        if refused and not simulated:
            with pytest.raises(BadInput, check=coded("out-of-range", "epsilon = ")):
                Session.begin(state_dir, weak, identity_is_stable=True)
        else:
            with Session.begin(state_dir, weak, identity_is_stable=True) as session:
                assert session.account.rounds == 1


def test_the_grid_costs_noise_and_no_privacy(tmp_path: Path) -> None:
    with_grid, without = (cost_of(plan(privacy__rounding=name)) for name in ("grid", "none"))
    assert with_grid.loss == without.loss
    assert with_grid.noise_multiplier == without.noise_multiplier
    noisy, plain = (Session.rehearse(cost.plan, noise=True) for cost in (with_grid, without))
    assert 1 < noisy.rounds.step_info().noise_std / plain.rounds.step_info().noise_std < 1.001


def test_one_user_among_ten_thousand_in_a_reply_is_paid_for() -> None:
    made = Session.rehearse(plan(run__cohort=10_000, run__min_reports=1), noise=True)
    assert made.rounds.running_noise.privatiser.std > 2.0 * (1 + 10_000 * 2.0**-23)


def test_discrete_noise_is_charged_as_a_gaussian_of_a_slightly_smaller_scale() -> None:
    cost = cost_of(rounded("discrete"))
    mu_squared = (cost.sensitivity / 2.0) ** 2
    assert cost.loss.gaussian
    assert cost.loss.mu_squared == pytest.approx(mu_squared / (1 - 9 / 1024**2), rel=1e-14)
    assert cost.loss.mu_squared > mu_squared
    assert cost.leak is not None
    assert 0 < cost.leak < 1e-50
    for epsilon in (0.1, 1.0, 8.0):
        made = cost_of(rounded("discrete", privacy={**_target(epsilon), "rounding": "discrete"}))
        assert epsilon * (1 - 1e-9) < made.epsilon <= epsilon
        plain = cost_of(rounded("discrete", privacy=_target(epsilon))).noise_multiplier
        assert plain < made.noise_multiplier < plain * (1 + 1e-5)


def _target(epsilon: float) -> dict[str, object]:
    return {"population": "people", "epsilon": epsilon, "delta": 1e-5}


@pytest.mark.parametrize(
    "mechanism", [{"kind": "nu"}, {"kind": "tree"}, {"kind": "blt"}, {"kind": "banded", "bands": 2}]
)
def test_discrete_noise_needs_whole_numbers(mechanism: dict[str, object]) -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "privacy.rounding", "'discrete'")) as refusal:
        cost_of(plan(privacy__rounding="discrete", mechanism=mechanism))
    assert "independent" in refusal.value.nearest


def test_discrete_noise_is_not_amplified() -> None:
    poisson = {
        "privacy__rounding": "discrete",
        "privacy__adjacency": "add_remove",
        "run__min_reports": None,
        "participation": {"scheme": "poisson", "rate": 0.25},
        "mechanism": {"kind": "independent"},
    }
    with pytest.raises(BadInput, check=coded("unsupported", "privacy.rounding")):
        cost_of(plan(**poisson))


def test_a_plan_from_before_there_was_a_grid_is_what_it_was() -> None:
    old = json.loads(plan(privacy__rounding="none").to_json())
    assert "rounding" not in old["privacy"]
    assert Plan.stored(old).privacy.rounding == "none"
    assert Plan.stored(old).digest() == plan(privacy__rounding="none").digest()
    assert Plan.parse(old).privacy.rounding == "grid"
    for name in ("grid", "discrete"):
        now = plan(privacy__rounding=name)
        assert Plan.stored(json.loads(now.run_json(0.0))) == now
    with pytest.raises(BadInput, check=coded("value-wrong", "privacy.rounding")):
        plan(privacy__rounding="cells")


def test_with_discrete_noise_everything_is_counted_as_zcdp() -> None:
    gaussian = cost_of(plan()).loss
    discrete = PrivacyLoss(concentrated=cost_of(rounded("discrete")).sensitivity ** 2 / 8)
    both = gaussian + discrete
    assert both.rho == gaussian.rho + discrete.rho
    assert both.epsilon(1e-5) == zcdp_epsilon(both.rho, 1e-5) > gaussian.epsilon(1e-5)
    assert math.isclose(both.delta(both.epsilon(1e-5)), 1e-5, rel_tol=1e-9)
    assert type(both).from_json(both.to_json()) == both
    assert not both.gaussian
    assert "concentrated" not in gaussian.to_json()
