"""Random allocation and capped Poisson rounds: never below the truth, hardly above it, in both orders."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from fieldfare import mechanisms
from fieldfare.accounting import PoissonGaussian, PrivacyLoss, calibrate, charge_for, gaussian_delta
from fieldfare.accounting.allocation import Allocation, CutAllocation, allocated_losses
from fieldfare.accounting.composition import Composition
from fieldfare.accounting.filter import price
from fieldfare.accounting.sampled import compositions
from fieldfare.accounting.truncated import TruncatedGaussian, excess, least_cap
from fieldfare.cost import StoredPrice
from fieldfare.costing import cost_as_priced, cost_of
from fieldfare.errors import BadInput
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.independent import Independent
from fieldfare.participation import Adjacency, Poisson, RandomAllocation, TruncatedPoisson
from fieldfare.plan import Plan
from oracles.allocation import integrated, sampled
from support.refusals import coded


def deltas(event: Allocation | PoissonGaussian, epsilon: float) -> tuple[float, float]:
    return deltas_of(PrivacyLoss(sampled=(event,)), epsilon)


def deltas_of(loss: PrivacyLoss, epsilon: float) -> tuple[float, float]:
    orders = compositions(0.0, loss.sampled)
    assert orders is not None
    return orders[0].delta(epsilon), orders[1].delta(epsilon)


# spec/amplification.md, 6.1, independent noise, fresh: (bins, blocks, sigma, epsilon) -> (removing, adding).
PUBLISHED = {
    (2, 2, 2.0, 1.0): (8.4851071904e-3, 7.8093317806e-3),
    (2, 2, 2.0, 2.0): (2.2836737527e-5, 1.3143360856e-5),
    (2, 2, 1.0, 1.0): (1.6212057127e-1, 1.5292346473e-1),
}


@pytest.mark.parametrize("case", PUBLISHED, ids=str)
def test_published_integrals_lie_below_the_charge_and_close_to_it(case: tuple[int, int, float, float]) -> None:
    bins, blocks, sigma, epsilon = case
    found = deltas(Allocation(bins, sigma, blocks), epsilon)
    for charged, exact in zip(found, PUBLISHED[case], strict=True):
        assert exact < charged < exact * (1 + 3e-4)


@pytest.mark.parametrize(
    "case",
    [(2, 1, 1.0, 0.5), (2, 2, 2.0, 1.0), (3, 1, 0.7, 2.0), (4, 1, 1.0, 1.0), (4, 1, 3.0, 0.1)],
    ids=str,
)
def test_every_case_of_up_to_four_rounds_by_integration(case: tuple[int, int, float, float]) -> None:
    bins, blocks, sigma, epsilon = case
    found = deltas(Allocation(bins, sigma, blocks), epsilon)
    for charged, exact in zip(found, integrated(blocks, bins, sigma, epsilon), strict=True):
        assert exact * (1 - 1e-8) < charged < exact * (1 + 4e-4)


def test_integration_finds_what_the_specification_prints() -> None:
    """The oracle itself."""
    assert integrated(2, 2, 2.0, 1.0) == pytest.approx(PUBLISHED[2, 2, 2.0, 1.0], rel=1e-7)


@pytest.mark.parametrize(("bins", "blocks", "sigma", "epsilon"), [(16, 4, 1.0, 0.5), (7, 3, 0.8, 1), (64, 2, 0.5, 2)])
def test_samples_of_the_pair_itself_agree(bins: int, blocks: int, sigma: float, epsilon: float) -> None:
    """Five standard errors: a false alarm has probability 6e-7, and the seed is fixed."""
    drawn = sampled(blocks, bins, sigma, epsilon, np.random.default_rng(7), 60_000)
    for charged, (mean, error) in zip(deltas(Allocation(bins, sigma, blocks), epsilon), drawn, strict=True):
        assert abs(charged - mean) < 5 * error + 4e-4 * mean


@pytest.mark.parametrize(
    ("sigma", "blocks", "interval"), [(1.29005, 1, (0.9807, 1.0172)), (1.9705, 4, (1.0001, 1.0413))]
)
def test_epsilon_lies_in_the_interval_of_the_authors_of_random_allocation(
    sigma: float, blocks: int, interval: tuple[float, float]
) -> None:
    """PLD_accounting 2.0 (Feldman and Shenfeld), one round of 16, delta 1e-5; spec/amplification.md 6.3."""
    found = PrivacyLoss(sampled=(Allocation(16, sigma, blocks),)).epsilon(1e-5)
    assert interval[0] < found < interval[1]


def test_one_bin_is_the_gaussian_mechanism() -> None:
    for charged in deltas(Allocation(1, 2.0, 4), 1.0):
        assert gaussian_delta(1.0, 1.0) * (1 - 1e-9) < charged < gaussian_delta(1.0, 1.0) * (1 + 4e-4)


def test_masses_are_those_of_a_pair() -> None:
    """Both worlds have mass 1, and the likelihood ratio of each loss is the loss itself."""
    with_user, without = allocated_losses(12, 1.0, 1e-3)
    assert with_user.probs.sum() + with_user.infinite == pytest.approx(1, abs=1e-13)
    assert without.probs.sum() + without.infinite == pytest.approx(1, abs=1e-13)
    assert with_user.infinite < 1e-15
    losses = 1e-3 * np.arange(with_user.lowest, with_user.highest + 1)
    np.testing.assert_allclose(with_user.probs, without.probs[::-1] * np.exp(losses), rtol=1e-12, atol=1e-300)


def test_a_coarser_grid_only_costs_more() -> None:
    fine, coarse = (
        [Composition([(loss, 4)]).delta(0.5) for loss in allocated_losses(16, 2.0, step)] for step in (1e-3, 0.03)
    )
    assert all(a < b < 1.1 * a for a, b in zip(fine, coarse, strict=True))


def test_a_fresh_round_costs_less_than_one_for_the_whole_run_and_less_than_none() -> None:
    """Two epochs of 1 of 2, sigma 2, epsilon 1: 1.0547e-2 for balls in bins (spec 6.1)."""
    fresh = max(deltas(Allocation(2, 2.0, 2), 1.0))
    assert fresh < 1.0546986535e-2
    event = Allocation(16, 1.98, 4)
    loss = PrivacyLoss(sampled=(event,))
    assert loss.without_amplification().mu_squared == pytest.approx(4 / 1.98**2, rel=1e-12)
    assert loss.epsilon(1e-5) == pytest.approx(1.0142, abs=1e-3)
    assert loss.epsilon(1e-5) < 0.25 * loss.without_amplification().epsilon(1e-5)
    paid = price(loss, 1e-7)
    assert paid.leak == 1e-7
    assert 0.26 < paid.mu < 0.29


def test_events_survive_a_ledger_and_merge_with_their_own_kind() -> None:
    events = (
        Allocation(16, 2.0, 3),
        CutAllocation(16, 2.0, 1, 5),
        PoissonGaussian(0.1, 2.0, 5),
        TruncatedGaussian(0.1, 2.0, 5, 40, 90),
    )
    loss = PrivacyLoss(0.25, events)
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    doubled = loss + loss
    assert {replace(event, count=1): event.count for event in doubled.sampled} == {
        replace(event, count=1): 2 * event.count for event in events
    }
    assert PrivacyLoss(sampled=events[2:3]).to_json() == '{"mu_squared":0.0,"sampled":[[0.1,2.0,5]]}'


@pytest.mark.parametrize(
    "text",
    [
        '{"bins":16,"count":1}',
        '{"bins":1.5,"count":1,"noise_multiplier":2.0}',
        '{"bins":16,"count":1,"noise_multiplier":0.0}',
        '{"bins":16,"count":1,"noise_multiplier":2.0,"rounds":16}',
        '{"bins":16,"count":1,"noise_multiplier":2.0,"rounds":0}',
        '{"bins":16,"cap":3,"count":1,"noise_multiplier":2.0}',
        '{"cap":0,"count":1,"enrolled":9,"noise_multiplier":2.0,"rate":0.1}',
        '"1,2,3"',
    ],
)
def test_a_torn_event_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        PrivacyLoss.from_json(f'{{"mu_squared":0.0,"sampled":[{text}]}}')


# -- where it is charged ----------------------------------------------------------------------------------------------


CAPPED = TruncatedPoisson(0.25, 20, 24)


@pytest.mark.parametrize(
    ("participation", "kind", "allowed"),
    [
        (RandomAllocation(4), "nu", "banded"),
        (RandomAllocation(4), "tree", "banded"),
        *((CAPPED, kind, "only") for kind in ("nu", "banded", "tree")),
    ],
)
def test_correlated_noise_is_refused_by_name(
    participation: RandomAllocation | TruncatedPoisson, kind: str, allowed: str
) -> None:
    mechanism: Mechanism = mechanisms.build({"kind": kind, **({"bands": 2} if kind == "banded" else {})}, 8)
    with pytest.raises(BadInput, check=coded("unsupported", f"{kind!r}", allowed)):
        charge_for(mechanism, participation, 2.0, 8, "add_remove")
    with pytest.raises(BadInput, check=coded("unsupported", "participation.scheme")):
        calibrate(mechanism, participation, epsilon=1.0, delta=1e-5, adjacency="add_remove")


@pytest.mark.parametrize("participation", [RandomAllocation(4), TruncatedPoisson(0.25, 20, 24)], ids=repr)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_public_participation_is_refused(
    participation: RandomAllocation | TruncatedPoisson, adjacency: Adjacency
) -> None:
    with pytest.raises(BadInput, check=coded("unsupported", "adjacency")):
        charge_for(Independent(8), participation, 2.0, 8, adjacency)


@pytest.mark.parametrize(
    ("rounds", "bins", "sigma"), [(2, 3, 1.5), (3, 4, 1.0), (3, 2, 0.8), (4, 3, 1.5), (2, 5, 0.5), (4, 7, 1.2)]
)
def test_a_last_block_that_is_cut_short_is_charged_by_its_own_law(rounds: int, bins: int, sigma: float) -> None:
    """Every (T, b) against the whole run's pair by integration: never below it, and within 1 % of it."""
    blocks = -(-rounds // bins)
    loss = charge_for(Independent(rounds), RandomAllocation(bins), sigma, rounds, "add_remove")
    as_whole = charge_for(Independent(rounds), RandomAllocation(bins, whole=True), sigma, rounds, "add_remove")
    assert [event.count for event in as_whole.sampled] == [blocks]
    for epsilon in (0.0, 0.3, 1.0):
        true = integrated(blocks, bins, sigma, epsilon, rounds)
        charged = deltas_of(loss, epsilon)
        assert all(t * (1 - 1e-6) <= c <= t * 1.01 + 1e-9 for t, c in zip(true, charged, strict=True)), (true, charged)
        assert loss.delta(epsilon) < as_whole.delta(epsilon)


def test_a_cut_block_costs_more_with_every_round_and_never_more_than_a_whole_one() -> None:
    def cost(rounds: int) -> tuple[float, ...]:
        event = Allocation(5, 0.9, 1) if rounds == 5 else CutAllocation(5, 0.9, 1, rounds)
        return tuple(max(deltas(event, epsilon)) for epsilon in (0.0, 0.5, 2.0, 4.0))

    costs = [cost(rounds) for rounds in range(1, 6)]
    for fewer, more in itertools.pairwise(costs):
        assert all(a < b for a, b in zip(fewer, more, strict=True))


def test_a_run_is_charged_whole_blocks_until_its_own_last_one() -> None:
    setting = Independent(10), RandomAllocation(4), 2.0
    losses = [charge_for(*setting, rounds, "add_remove") for rounds in range(11)]
    shown = [[(type(e).__name__, e.count) for e in loss.sampled] for loss in losses]
    one, two = [("Allocation", 1)], [("Allocation", 2)]
    assert shown == [[], *[one] * 4, *[two] * 4, *[[*two, ("CutAllocation", 1)]] * 2]
    assert all(before.part_of(after) for before, after in itertools.pairwise(losses))
    assert losses[0] == PrivacyLoss()


def test_a_run_that_began_at_whole_blocks_goes_on_so() -> None:
    """Its stored price is of two whole blocks for four rounds; a new run of its plan is charged less."""
    about = {"epsilon": None, "noise_multiplier": 1.5, "adjacency": "add_remove", "clip": 1.0, "delta": 1e-5}
    a_plan = Plan(
        task="digits", rounds=4, cohort=20, mechanism="independent",
        participation={"scheme": "random-allocation", "bins": 3}, **about,
    )  # fmt: skip
    new, old = cost_of(a_plan), PrivacyLoss(sampled=(Allocation(3, 1.5, 2),))
    assert [type(event) for event in new.loss.sampled] == [Allocation, CutAllocation]
    kept = cost_as_priced(a_plan, {}, StoredPrice(old, 1.5))
    assert kept.loss == old
    charge = kept.realised()
    spent = [kept.charged(charge.add(t, np.zeros(0, np.int64))) for t in range(4)]
    assert spent == [PrivacyLoss(sampled=(Allocation(3, 1.5, n),)) for n in (1, 1, 1, 2)]
    assert cost_as_priced(a_plan, {}, new.stored_price).loss == new.loss
    with pytest.raises(BadInput, check=coded("differs", "the planned loss")):
        cost_as_priced(a_plan, {}, StoredPrice(PrivacyLoss(sampled=(Allocation(3, 1.5, 1),)), 1.5))


def test_the_least_noise_of_the_demos_plan() -> None:
    """Four epochs of 1 of 16 at epsilon 1: the specification estimates 1.98, and Poisson needs more."""
    setting = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove"}
    fresh = calibrate(Independent(64), RandomAllocation(16), **setting)
    assert fresh == pytest.approx(1.98, abs=0.03)
    assert charge_for(Independent(64), RandomAllocation(16), fresh, 64, "add_remove").epsilon(1e-5) <= 1
    assert fresh < calibrate(Independent(64), Poisson(1 / 16), **setting)


# -- a cap on the cohort ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "cap", "enrolled"), [(0.25, 9, 24), (0.0625, 300, 3243), (0.5, 1, 2), (1.0, 5, 6)])
def test_the_probability_that_others_fill_a_round(rate: float, cap: int, enrolled: int) -> None:
    assert excess(rate, cap, enrolled) == pytest.approx(float(binom.sf(cap - 1, enrolled - 1, rate)), rel=1e-9)
    assert excess(rate, enrolled, enrolled) == excess(rate, enrolled + 3, enrolled) == 0


def test_the_smallest_cap_is_the_smallest() -> None:
    cap = least_cap(0.0625, 3243, 64, 1e-8)
    assert 64 * excess(0.0625, cap, 3243) <= 1e-8 < 64 * excess(0.0625, cap - 1, 3243)
    assert least_cap(1.0, 10, 64, 1e-8) == 10


def test_the_excess_of_every_round_is_part_of_delta() -> None:
    """Equation (1) of `sampled`, as an equality: the worst that may happen outside of Poisson sampling."""
    plain, capped = PoissonGaussian(0.25, 2.0, 6), TruncatedGaussian(0.25, 2.0, 6, 12, 24)
    tau = 1 - (1 - float(binom.sf(11, 23, 0.25))) ** 6
    assert 1e-4 < tau < 1e-1
    for uncapped, found in zip(deltas(plain, 1.0), deltas(capped, 1.0), strict=True):
        assert found == pytest.approx(tau + (1 - tau) * uncapped, rel=1e-9)
    free = TruncatedGaussian(0.25, 2.0, 6, 24, 24)
    assert deltas(free, 1.0) == deltas(plain, 1.0)


def test_a_cap_that_is_free_costs_what_dp_accounting_says() -> None:
    """It also takes the exact number of users as public; where the cap hardly ever matters that makes no difference."""
    file = Path(__file__).parents[2] / "reference" / "accounting.json"
    (row,) = (row for row in json.loads(file.read_text())["rows"] if row["id"].startswith("truncated_poisson"))
    p = row["params"]
    event = TruncatedGaussian(p["q"], p["sigma"], p["T"], p["cap"], p["n"])
    found = PrivacyLoss(sampled=(event,)).epsilon(p["delta"])
    assert row["value"] < found < row["value"] * (1 + 1e-4)


def test_a_displaced_user_is_charged_without_amplification() -> None:
    """Where amplification cannot be claimed, one user changes two updates: their own and that of whom they displace."""
    capped = PrivacyLoss(sampled=(TruncatedGaussian(0.25, 2.0, 6, 12, 24),))
    assert capped.without_amplification() == PrivacyLoss(4 * 6 / 4)
    assert price(capped, 0.0).mu_squared == 6.0
    # The leak of a run is smaller than what the cap may cost: no amplification either.
    assert price(capped, 1e-6).mu_squared == 6.0


def test_two_users_with_room_for_one_reach_what_is_charged() -> None:
    """n = 2, cap 1, rate q, one round: the other one leaves, or takes the place; an exact worst case stays below.

    The world with the user: both drawn (q^2) shows one of them by lot; the other's update is -1, the user's is 1.
    """
    rate, sigma, epsilon = 0.3, 1.0, 0.5
    line, step = np.linspace(-12, 12, 200_001, retstep=True)

    def around(mean: float) -> np.ndarray:
        return np.asarray(np.exp(-((line - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)))

    both, one, none = rate**2, rate * (1 - rate), (1 - rate) ** 2
    with_user = both * (around(1) + around(-1)) / 2 + one * (around(1) + around(-1)) + none * around(0)
    without = rate * around(-1) + (1 - rate) * around(0)
    grow = math.exp(epsilon)
    reached = [float(np.maximum(x, 0).sum() * step) for x in (with_user - grow * without, without - grow * with_user)]
    charged = deltas(TruncatedGaussian(rate, sigma, 1, 1, 2), epsilon)
    assert all(a < b for a, b in zip(reached, charged, strict=True))
    assert max(reached) > max(deltas(PoissonGaussian(rate, sigma, 1), epsilon)), "the cap costs something"


@pytest.mark.parametrize("sigma", [1e-3, 0.02, 0.06, 50.0])
def test_extreme_noise_is_charged_or_refused_but_never_too_low(sigma: float) -> None:
    """Below a multiplier of about .05 no amplification is claimed: exp of a loss would leave float64's range."""
    loss = PrivacyLoss(sampled=(Allocation(16, sigma, 4),))
    found = loss.epsilon(1e-5)
    assert 0 <= found <= loss.without_amplification().epsilon(1e-5)
    assert (compositions(0.0, loss.sampled) is None) == (sigma < 0.05)
