"""Whether a plan can reach its end with the users that there are: asked before anything is reserved or spent.

Every round needs `run.min_reports` users; each user takes part at most `max_participations` times,
`separation` rounds apart. Where all users stay, the answer is exact (`fieldfare.capacity`), and the selector
reaches the end whenever it is yes. Where users come and go (`[availability]`), the run's own selector is
tried on the run's own users: who can be asked and who answers follow from the plan's seed, and only the
cohorts differ from trial to trial.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfare.capacity import fills
from fieldfare.errors import Refused, TooFew
from fieldfare.participation import SAMPLED, FixedOrder, MinSeparation, Participation, Single
from fieldfare.participation_record import ParticipationRecord
from fieldfare.plan import Plan
from fieldfare_server.run.presence.availability import SimulatedAvailability
from fieldfare_server.run.presence.patience import MOST_VOIDS
from fieldfare_server.run.presence.selection import NotEnoughUsers, Selector, Users
from fieldfare_server.run.pricing import price

# Timetables that are tried. None of 20 reaches the end: then, at 95 %, fewer than one in seven would.
TRIALS = 20
VISITS = 2e8  # users x rounds that all trials together may look at; larger plans get fewer trials
SHORTER = (1.0, 0.9, 0.7, 0.4)  # of the rounds that every trial filled: what a shorter plan is tried with
MOST_MADE_UP = 1_000_000  # made-up users; more of them could only fill more rounds


def is_feasible(participation: Participation, rounds: int, cohort: int, users: int) -> bool:
    """Return whether `users` users can give each of `rounds` rounds `cohort` reports, if all stay and answer.

    Exact for single, min-separation and, for the least favourable deal of users to places, fixed order.
    Sampling runs with any number of users.

    Args:
        participation: what a plan promises of every user.
        rounds: of the plan.
        cohort: reports that each round needs.
        users: how many there are.
    """
    if isinstance(participation, SAMPLED):
        return True
    separation, most = participation.separation_and_count(rounds)
    if isinstance(participation, FixedOrder):
        # A place has at least floor(users / period) users, who may take part in each of its rounds.
        return fills(users // separation, -(-rounds // separation), cohort, 1, most)
    return fills(users, rounds, cohort, separation, most)


def require_feasible(plan: Plan, users: int) -> None:
    """Refuse a plan whose rounds `users` users cannot fill.

    Raises:
        BadInput: with the nearest cohort, number of rounds and cap that would be possible.
    """
    participation, rounds, needed = plan.participation.build(), plan.run.rounds, max(1, plan.report_goal)
    if (waits := plan.run.min_available or 0) > users:
        raise TooFew(f"run.min_available = {waits}", f"there are {users} users to ask.", f"at most {users}")
    if is_feasible(participation, rounds, needed, users):
        return
    separation, most = participation.separation_and_count(rounds)
    visits = rounds * needed
    if users * most < visits:
        why = f"need {visits} participations; there are {users} users to ask, who give at most {users * most}."
    else:
        why = f"need {needed * min(separation, rounds)} users, and there are {users} to ask."
    near = nearest_feasible(plan, users)
    # Beside a tuning share, how many users there are in all is not known here.
    if isinstance(participation, MinSeparation) and plan.privacy.epsilon is not None and plan.tuning is None:
        with suppress(Refused):
            price(fitted_to(plan, users))
            near.append(f"fieldfare suggest --users {users}")
    raise TooFew(
        f"{rounds} rounds of {needed} reports (run.min_reports) with at most {most} participations at least "
        f"{separation} rounds apart",
        why,
        ", or ".join(near),
    )


def fitted_to(plan: Plan, users: int) -> Plan:
    """Return the plan; where so many users cannot fill its rounds, with a cohort and a separation with which they can.

    A plan that only its author could fit is returned as it is. Raises `BadInput` where a rule refuses the fitted one.
    """
    spaced = isinstance(plan.participation.build(), MinSeparation | Single)
    if not spaced or is_feasible(plan.participation.build(), plan.run.rounds, max(1, plan.report_goal), users):
        return plan
    table, cohort = plan.model_dump(mode="json", exclude_none=True), min(plan.run.cohort, max(1, users // 2))
    if plan.run.min_reports:
        table["run"]["min_reports"] = max(1, plan.run.min_reports * cohort // plan.run.cohort)
    table["run"]["cohort"], table["participation"] = cohort, spread(plan.run.rounds, cohort, users)
    return Plan.parse(table)


def spread(rounds: int, cohort: int, users: int) -> dict[str, Any] | None:
    """Return everybody as seldom and as far apart as `users` users can fill the rounds; None where they cannot."""
    if cohort > users:
        return None
    apart, most = min(rounds, users // cohort), -(-rounds * cohort // users)
    if most == 1:
        return {"scheme": "single"}
    return {"scheme": "min-separation", "separation": apart, "max_participations": most}


def nearest_feasible(plan: Plan, users: int) -> list[str]:
    """Return what would do with one number changed, each tried and priced as a plan; else how many users would."""
    spec, rounds, needed = plan.participation, plan.run.rounds, max(1, plan.report_goal)
    participation = spec.build()
    apart, _ = participation.separation_and_count(rounds)
    cohort = _largest(needed, lambda size: is_feasible(participation, rounds, size, users))
    fewest = {"min_reports": cohort} if plan.run.min_reports else {}
    shorter = _largest(rounds, lambda count: is_feasible(participation, count, needed, users))
    found = [_tried(plan, {"cohort": cohort, **fewest}, {}), shorter_plan(plan, shorter)]
    most_of_all = -(-rounds // apart) if spec.max_participations else 0

    def lacks(cap: int) -> bool:
        capped = spec.model_copy(update={"max_participations": cap}).build()
        return not is_feasible(capped, rounds, needed, users)

    cap = 1 + _largest(most_of_all, lacks)
    if cap <= most_of_all and (capped := _tried(plan, {}, {"max_participations": cap})):
        dearer = "noise" if plan.privacy.epsilon else "epsilon"
        found.append((f"{capped[0]}, which costs more {dearer}", capped[1]))
    enough = 1 + _largest((rounds + apart) * needed, lambda many: not is_feasible(participation, rounds, needed, many))
    return [option[0] for option in found if option] or [f"{enough} users or more to ask"]


def shorter_plan(plan: Plan, rounds: int) -> tuple[str, Plan] | None:
    """Return (what a person changes, `plan` of so many rounds), priced; None where that is refused."""
    # A plan is refused whose cap is more than a user can take part in so few rounds.
    apart, most = plan.participation.build().separation_and_count(plan.run.rounds)
    fits, capped = -(-rounds // apart), plan.participation.max_participations
    return _tried(plan, {"rounds": rounds}, {"max_participations": fits} if capped and fits < most else {})


def _tried(plan: Plan, run: dict[str, int], part: dict[str, int]) -> tuple[str, Plan] | None:
    table = plan.model_dump(mode="json", exclude_none=True)
    table |= {"run": table["run"] | run, "participation": table["participation"] | part}
    try:
        price(made := Plan.parse(table))
    except Refused:
        return None
    return " with ".join(f"{key} = {value}" for key, value in (run | part).items()), made


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number in [1, most] for which `holds`, true up to some number and not above; else 0."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Reach:
    """How far trial timetables of a run came."""

    trials: int
    finished: int
    least: int  # rounds that every trial filled
    middle: int  # rounds that half of the trials filled


def reach_under_availability(plan: Plan, names: NDArray[np.uint64], *, trials: int = TRIALS) -> Reach:
    """Draw timetables of `plan` among its simulated users, as a run does, without training.

    Args:
        plan: has an `[availability]`.
        names: the users' pseudonyms, shape (n,).
        trials: how many; fewer where users x rounds are many, at least one.
    """
    trials = max(1, min(trials, int(VISITS / max(1, names.size * plan.run.rounds))))
    reached = sorted(_reach_once(plan, np.sort(names), np.random.default_rng((3, trial))) for trial in range(trials))
    finished = sum(rounds == plan.run.rounds for rounds in reached)
    return Reach(trials, finished, reached[0], reached[len(reached) // 2])


def _reach_once(plan: Plan, names: NDArray[np.uint64], generator: np.random.Generator) -> int:
    model = SimulatedAvailability.of(plan, lambda users: names[users])
    assert model is not None
    needed = max(1, plan.report_goal)
    order = np.random.default_rng(generator.integers(2**63))
    run = plan.run

    def words(count: int, attempt: int, draw: str) -> NDArray[np.uint64]:
        return order.integers(0, 2**64, count, dtype=np.uint64)

    selector = Selector(
        plan.participation.build(), run.rounds, run.cohort, run.over_selection, order=order, words=words, fewest=needed
    )
    taken, everyone = ParticipationRecord(names.size), np.arange(names.size, dtype=np.int64)
    for round in range(run.rounds):

        def select(available: Users, round: int = round) -> Users:
            return selector.select(
                round, available, taken.last_and_count, generator, generator.random, None if plan.samples else everyone
            )

        for _ in range(MOST_VOIDS):
            try:
                reported = model.answering(round, model.wait(round, everyone, select))
            except NotEnoughUsers:
                return round
            if reported.size >= plan.report_goal:
                taken.add(round, reported)
                break
        else:
            return round
    return run.rounds


def check_feasible(plan: Plan, users: NDArray[np.uint64] | int) -> list[str]:
    """Return warnings about `plan` with these users.

    Args:
        users: their pseudonyms, shape (n,), or how many there are: then made-up ones come and go.

    Raises:
        BadInput: it cannot reach its end, or, under `[availability]`, no trial did.
    """
    require_feasible(plan, users if isinstance(users, int) else int(users.size))
    if plan.availability is None:
        return _could_rest(plan, users if isinstance(users, int) else int(users.size))
    names = np.arange(min(users, MOST_MADE_UP), dtype=np.uint64) if isinstance(users, int) else users
    reach = reach_under_availability(plan, names)
    if reach.finished == reach.trials:
        return []
    why = (
        f"{reach.finished} of {reach.trials} trial timetables of these {names.size} users reach the end; the one in "
        f"the middle fills {reach.middle} of {plan.run.rounds} rounds."
    )
    if not reach.finished:
        shorter = (shorter_plan(plan, rounds) for share in SHORTER if (rounds := int(share * reach.least)))
        near = (found[0] for found in shorter if found and reach_under_availability(found[1], names).finished)
        other = "a higher reachable, or a smaller min_reports"
        raise TooFew("availability with this participation", why, next(near, other))
    return [f"availability: {why} A run that stops before its end has spent what its rounds cost."]


def _could_rest(plan: Plan, users: int) -> list[str]:
    """Return a warning where so many users fill the rounds with half of the visits each, twice as far apart."""
    scheme, rounds = plan.participation.build(), plan.run.rounds
    apart, most = scheme.separation_and_count(rounds)
    rested = MinSeparation(min(2 * apart, rounds), -(-most // 2))
    spaced = isinstance(scheme, MinSeparation) and most > 1 and plan.privacy.epsilon is not None
    if not spaced or plan.tuning is not None or not is_feasible(rested, rounds, plan.run.cohort, users):
        return []
    why = f"its noise is for fewer than half of these {users} users"
    return [f"participation: {why}; fieldfare suggest --users {users} finds what needs least"]
