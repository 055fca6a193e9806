"""What a run promises its users, on which assumptions, and what it does not promise: sentences for page and
statement.

Every number in them is the ledger's, or follows from the ledger's plan and charge (`plan_facts`). A run whose
plan this version cannot read still gets a card, from the ledger's columns alone.
"""

from __future__ import annotations

from fieldfare import __version__
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import PLAIN_SHARE
from fieldfare.aggregation import PLAIN, AggregationSpec
from fieldfare.names import RESOLUTION, is_question, mechanism_word
from fieldfare.noise.discrete import Rounding
from fieldfare.participation import CALLED, Adjacency, adjacency_factor
from fieldfare.plan import Plan
from fieldfare.plan_tables import ParticipationSpec
from fieldfare.population_size import beyond_noise, population_size_warnings
from fieldfare.questions import Question
from fieldfare.text import decimal, promised, up
from fieldfare_server.evidence.document import Fact, Guarantee
from fieldfare_server.evidence.looks import question_of
from fieldfare_server.evidence.plan_facts import PlanFacts
from fieldfare_server.evidence.words import loss_in_words
from fieldfare_server.ledger.state.formats import has_nonces
from fieldfare_server.ledger.states import Accounting
from fieldfare_server.ledger.views import PopulationView, RunView

ADJACENCY: dict[Adjacency, str] = {
    "zero_out": "zero-out: what one user sends replaced by zero; who was available, how many reported and why a "
    "reply was refused is public",
    "add_remove": "add or remove: one user is present or absent, with everything that user would have contributed",
    "replace_one": "replace one: what one user sends replaced by any other user's; counted as twice the sensitivity",
}

ACCOUNTING: dict[Accounting, str] = {
    "individual": "each user is charged what that user took part in, over all runs, by an individual filter (Feldman "
    "and Zrnic 2021; Koskela, Tobaben and Honkela 2023): participation is public under this adjacency, and who is "
    "asked is decided without looking at updates; a user whose odometer is full is asked no longer. An identity that "
    "changes makes a new user",
    "worst-case": "every user is charged what the user who takes part most can lose",
}

CURATOR = "The server's operator, who can see each node's sum before noise is added and who holds the noise key."
NOT_COVERED = (
    CURATOR,
    "What leaks outside of the released models and statistics: network traffic, timing, a node's own disk.",
    "What can be learned about a user from other people's data, or from other releases about the same user.",
    "Other populations of the same users: each has a budget of its own, and what a user loses adds up. In this ledger "
    "registration refuses a user of another population, where neither hides who is there (who was registered before "
    "there was this rule was not checked); other ledgers it cannot see. A node's own budget limits all together; "
    "whether nodes keep one the server cannot tell.",
    "Held-out data of the task, or of the app's own evaluation; the people in it are not users of the population.",
)

# Where the plan names a blinder that is a party of its own: whom the promise trusts, and what stands for the curator.
MASKED = (
    "the server is trusted with clipped sums of several nodes, and adds the noise; it and the blinder are "
    "trusted not to work together",
    (
        "The server's operator, who can see sums of {least} nodes or more before noise is added and who holds the "
        "noise key; together with the blinder's, each node's sum.",
        "A server that deviates: differences of sums of several rounds or several runs, a run configuration for each "
        "node, and code that it sends to nodes which do not pin what they start. Whether nodes do, it cannot tell.",
        "Nodes that lie: nobody checked that they clipped. Such a node can ruin the model, and no other user's "
        "promise.",
    ),
)
# The same where the blinder adds noise of its own.
HIDDEN = (
    "the server is trusted to follow the protocol, and adds the noise that protects against everybody else, "
    "the blinder too; the blinder adds what protects against the server; they are trusted not to work together",
    (
        "The server's operator, who holds its noise key: to whoever reads all that the server sees, the promise is the "
        "weaker one against the server. Together with the blinder's, each node's sum.",
        "A server that deviates: it chooses whom it asks and tells nodes how to clip, and it may send code to nodes "
        "which do not pin what they start. Whether nodes do, and keep budgets of their own, it cannot tell.",
        MASKED[1][2],
    ),
)

ROUNDING: dict[Rounding, str] = {
    "grid": "each reply is snapped to a grid before it is summed, double-precision noise to the same grid; the noise "
    "is larger by what snapping can move",
    "discrete": "each reply is snapped to a grid before it is summed, the noise is an exact discrete Gaussian on it, "
    "larger by what snapping can move",
    "none": "none: noise is drawn and added in single precision",
}

CHOSEN = (
    "each reply is snapped to a grid before it is summed; the draw is exact, from whole numbers; a user is taken to "
    "move them by what snapping can move, too"
)
# In the place of rounding and method, where a choice is released and no noised sum.
DOMINATED = "the Gaussian trade-off that dominates every choice of this range"

# What is not covered of the release itself. Since format 1 the grid's error is charged.
FLOATING_POINT: dict[Rounding, str] = {
    "grid": "The last bits of the drawn noise, which this run of an older version was not charged for: the probability "
    "of a released value is right to about one part in a million, mostly much better.",
    "discrete": "",
    "none": "Rounding: noise is drawn and added in floating point, but the proof uses real numbers.",
}

BEYOND = "Outcomes that no number of the noise reaches: they may be more probable than a hundredth of delta."
TOGETHER = "Rounding during training on a node that hosts several users: it depends on how many train together."
ALONE = "Rounding on a GPU whose kernels are not deterministic. On a CPU every user trains alone, to the last bit."

PUBLIC = "public by adjacency"  # what a registry lists as not protected says so

_BY_ADJACENCY: dict[Adjacency, tuple[str, ...]] = {
    "zero_out": (
        f"Who was available and asked, and how many replies were counted or refused: {PUBLIC}.",
        "What it tells that a user answered at all, or in time. The promise is about what users sent, given who "
        "answered.",
    ),
    "replace_one": (
        f"How many users there are, and how many replies were counted or refused: {PUBLIC}.",
        "What it tells that a user answered at all, or in time. The promise is about what users sent, given who "
        "answered.",
    ),
    "add_remove": (
        "A node that fails, or answers too late, because of one of its users: the replies of its other users are then "
        "missing too. So they are where a node hosts more than 20 million users or its reply is too large to send.",
    ),
}

FIRST_ANSWERS = (
    "How fast a user answers, which may depend on the user's data: more users are asked than are needed, and the first "
    "answers count."
)
CALLED_WHEN = (
    "Which rounds a user was called in, to someone who sees the network's traffic or who asks the user's own node: the "
    "promise counts on that being unknown, and is weaker to them (the Gaussian bound without sampling still holds)."
)
UNSCHEDULED = "How long rounds took, which tells how many users they had: the plan names no run.round_seconds."
SCHEDULED = (
    "That a round was late: it was then released at a later one of its scheduled times. How late it was is not shown."
)
THRESHOLD = (
    "The presence of one user where it decided whether a round had users at all: the plan names run.min_available, "
    "which newer versions refuse."
)

NOT_AT_HAND = "not shown: an optimiser decided the run's strategy, and its file is not at hand"

_GENERATORS = {"aes-256-ctr": "AES-256 in counter mode", "philox-4x32-10": "Philox, which is not cryptographic"}


def accountant() -> str:
    """Return the accountant's name and version."""
    return f"fieldfare.accounting {__version__}"


def guarantee(run: RunView, population: PopulationView, facts: PlanFacts | None) -> Guarantee:
    """Return the guarantee card of a run. facts: of `plan_facts`."""
    unit = population.unit
    delta = promised(run.delta)
    if run.ended_at is None:
        statement = (
            f"Everything this run releases is ({up(run.planned_epsilon):g}, {delta})-differentially private "
            f"for every {unit} once all {run.rounds} rounds are committed; ({up(run.spent_epsilon):g}, "
            f"{delta}) is spent so far. {_together(population)}"
        )
    else:
        # Who ends a run may have seen its models: what its rounds spent by then is a reading, and no bound.
        early = f" That is what was planned; its rounds spent ({up(run.spent_epsilon):g}, {delta})."
        statement = (
            f"Everything this run released, {run.next_round} of {run.rounds} rounds, is "
            f"({up(run.held[1]):g}, {delta})-differentially private for every {unit}."
            f"{early if run.held[0] != run.spent else ''} {_together(population)}"
        )
    sees, trust, of_server = _server(run, facts.plan.aggregation if facts else PLAIN)
    against = list[Fact]()
    if (loss := run.against_server) is not None:
        value = (
            f"({up(loss.epsilon(run.delta)):g}, {delta}) for the whole run, whoever reads all that the server "
            "sees, if it follows the protocol. What other runs show it adds up: the blinder's own budget limits that, "
            "and is not in this ledger"
        )
        against.append(Fact(name="Against the server", value=value))
        statement += (
            f" Against the server alone this whole run is ({up(loss.epsilon(run.delta)):g}, {delta})-"
            "differentially private, by the noise that the blinder added before the server could read."
        )
    if not run.private:
        statement = (
            "NOT PRIVATE: the noise comes from a fixed seed. The figures say what a secret key would have given."
        )
    source = _GENERATORS.get(facts.plan.privacy.noise_source, "another") if facts else "recorded as secure"
    source += "; a key of 256 random bits that no other run uses"
    unreadable = [Fact(name="Plan", value="written by another version; see the audit log")]
    lines = [
        Fact(name="Unit", value=f"{unit}, over the whole {'question' if is_question(run.plan) else 'training'}"),
        Fact(name="Adjacency", value=ADJACENCY[run.adjacency]),
        *(_plan_lines(facts, run.planned) if facts else unreadable),
        Fact(name="The server sees", value=sees),
        *against,
        Fact(name="In words", value=loss_in_words(run.planned_epsilon, run.delta, run.planned.gdp)),
        Fact(name="Trust", value=trust),
        Fact(name="Noise source", value=source if run.private else "fixed seed"),
        Fact(name="Accountant", value=f"{accountant()}, {DOMINATED if _is_choice(run) else run.planned.words.method}"),
        Fact(name="Accounting", value=ACCOUNTING[run.accounting]),
    ]
    return Guarantee(
        statement=statement,
        facts=tuple(lines),
        not_covered=_not_covered(run, population, facts, of_server),
        warnings=tuple(population_size_warnings(run.delta, population.users, facts.plan if facts else None)),
    )


def _together(population: PopulationView) -> str:
    committed = f"{up(population.committed_epsilon):g} committed of {up(population.epsilon, 6):g}."
    if population.overdrawn:
        return f"All runs charged to {population.name} together exceed its budget: {committed}"
    # A limit that was tightened is no bound for runs that were chosen under a larger one.
    bound = f"({up(population.bound_epsilon, 6):g}, {promised(population.bound_delta)})-differentially private"
    stay = f"all runs charged to {population.name} together stay {bound}, however each is chosen: {committed}"
    if population.accounting != "individual":
        return f"A{stay[1:]}"
    kept = f" Of delta, D = {decimal(population.leak, 3)} is kept for runs whose cohorts are drawn in secret."
    return (
        f"For each of {population.users} users, given who answered when, {stay} Users who are exhausted and are no "
        f"longer asked: {population.exhausted}." + (kept if population.leak > PLAIN_SHARE * population.delta else "")
    )


def _plan_lines(facts: PlanFacts, planned: PrivacyLoss) -> list[Fact]:
    clipping = facts.plan.clipping
    noise = sensitivity = NOT_AT_HAND
    if facts.sensitivity is not None:
        noise = f"{facts.noise_multiplier:.4g}" if facts.noise_multiplier else "varies"
        sensitivity = f"{facts.sensitivity:.4g} ({facts.bound}: {facts.how})"
    count = f"at most {facts.max_participations} of {facts.plan.run.rounds} rounds"
    apart = f", at least {facts.separation} rounds apart" if facts.max_participations > 1 else ""
    scheme = facts.plan.participation.scheme
    joined = [
        Fact(name="Participation", value=f"{scheme}: {count}{apart}; enforced when users are selected"),
        Fact(name="Sampling assumption", value=_sampling(facts.plan.participation, planned)),
    ]
    if (question := question_of(facts.plan.model_dump(mode="json"))) is not None:
        return [*joined, *_question_lines(question, facts.plan, noise)]
    return [
        Fact(name="Mechanism", value=f"{facts.plan.mechanism.kind}, {facts.plan.run.rounds} rounds"),
        *joined,
        *(Fact(name="Bound used", value=bound) for bound in (planned.words.bounds if facts.plan.secret else ())),
        Fact(name="Clip norm", value=f"{clipping.norm:g} ({clipping.kind})"),
        *_metrics_line(facts.plan),
        *_tuning_line(facts.plan),
        Fact(name="Noise multiplier", value=noise),
        Fact(name="Sensitivity", value=sensitivity),
        Fact(name="Rounding", value=ROUNDING[facts.plan.privacy.rounding]),
    ]


def _question_lines(question: Question, plan: Plan, noise: str) -> list[Fact]:
    """Return by which mechanism an answer is released, and what of a user is in it."""
    choice = question.released.startswith("exponential")
    return [
        Fact(name="Mechanism", value=question.released),
        Fact(name="Values", value=f"of a user: cut to {question.low:g} to {question.high:g}, which is declared public"),
        *_tuning_line(plan),
        Fact(name="Charged as noise multiplier" if choice else "Noise multiplier", value=noise),
        Fact(name="Sensitivity", value=question.bounded(adjacency_factor(plan.privacy.adjacency))),
        Fact(name="Rounding", value=CHOSEN if choice else ROUNDING[plan.privacy.rounding]),
    ]


def _metrics_line(plan: Plan) -> list[Fact]:
    """Return what else of users' data is shown of each round."""
    if plan.metrics is None:
        return []
    wider = plan.riders.joint_bound / plan.clipping.joint_bound - 1
    shown = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in sorted(plan.metrics.show.items()))
    value = (
        f"{shown}: bounds that the plan declares public. Each user's number is cut to them and noised in one vector "
        f"with the user's update, at weight {plan.metrics.weight:g}; the charge is that of both together, with "
        f"{wider:.2%} more noise. A user without the number stands at the middle; how many have it is not known"
        + ("" if plan.participation.scheme == "single" else "; who took part before is met by a model that saw them")
    )
    return [Fact(name="Metrics", value=value)]


def _tuning_line(plan: Plan) -> list[Fact]:
    """Return which users were asked at all."""
    if plan.tuning is None:
        return []
    share = f"the {plan.tuning.share:.3g} of the users that a hash keyed with the population's name sets apart"
    of = f"a trial, on {share}" if plan.tuning.users == "share" else f"all but {share} for trials"
    return [Fact(name="Users", value=f"{of}; each user is charged for the runs that asked that user")]


def _server(run: RunView, aggregation: AggregationSpec) -> tuple[str, str, tuple[str, ...]]:
    """Return what the server sees, with what the promise trusts whom, and what of that is not covered."""
    noise = "with the blinder's noise" if aggregation.noise_ratio else "without noise"
    sums = f"sums of at least {aggregation.fewest_nodes} nodes, {noise}"
    if not aggregation.party:
        does = "draws what is released" if _is_choice(run) else "adds the noise"
        trust = f"central: the server is trusted with each node's clipped sum, and {does}"
        sees = "each node's update, as it was sent, without noise"
        if aggregation.rings:
            sees = (
                f"each node's update: the nodes and the blinder are of its process, which rehearses {sums}. The server "
                "did not check that nodes clipped"
            )
        return sees, trust, (CURATOR,)
    sees = (
        f"{sums}, and no single update, unless it and the blinder {aggregation.party[:21]}... work together: each "
        "was masked before it left its node. The server did not check that nodes clipped"
    )
    trust, left_out = HIDDEN if aggregation.noise_ratio else MASKED
    return sees, trust, tuple(line.format(least=aggregation.fewest_nodes) for line in left_out)


def _is_choice(run: RunView) -> bool:
    return mechanism_word(run.plan) == "exponential"


def _sampling(participation: ParticipationSpec, planned: PrivacyLoss) -> str:
    sampler = planned.sampler(participation.build())
    if sampler is None:
        return "none: no amplification by sampling is claimed"
    claim = f"{sampler}; amplification by sampling is claimed"
    if participation.scheme not in CALLED:
        return claim
    stated = "the plan states it" if participation.callable else "users are simulated"
    return (
        f"{claim}. Users are called at will ({stated}); one who does not answer counts as present, with an update of "
        "zero"
    )


def _not_covered(
    run: RunView, population: PopulationView, facts: PlanFacts | None, of_server: tuple[str, ...]
) -> tuple[str, ...]:
    """Return what the promise leaves out, the gravest first. of_server: of what the server sees."""
    lines = []
    if facts is not None and facts.plan.run.trust_node_ids != run.trust_node_ids:
        lines.append("The plan and the ledger disagree on whether node ids are trusted.")
    if not run.private:
        lines.append("Anything at all: anyone who knows the seed can subtract the noise.")
    if population.simulated:
        lines.append("Real people: the population is marked as simulated.")
    if facts is not None and facts.plan.privacy.noise_source != "aes-256-ctr":
        lines.append("An attacker who can predict the noise generator, which is not a cryptographic one.")
    if run.trust_node_ids:
        lines.append(
            "Nodes that lie about whose data they hold: participation limits rely on the ids they claim. A node that "
            "starts again with a new key is a new user."
        )
    rounding: Rounding = facts.plan.privacy.rounding if facts else "none"
    charged = rounding == "grid" and RESOLUTION in run.plan
    source = facts.plan.privacy.noise_source if facts else ""
    if beyond_noise(run.planned, run.delta, source, rounding):
        lines.append(BEYOND)
    training = ALONE if run.adjacency == "add_remove" and has_nonces(run.noise_source) else TOGETHER
    floating = ("" if charged else FLOATING_POINT[rounding], training)
    if facts is not None:
        lines += _left_out_of_the_round(facts.plan)
    return (*lines, *_BY_ADJACENCY[run.adjacency], *of_server, *NOT_COVERED[1:], *filter(None, floating))


def _left_out_of_the_round(plan: Plan) -> list[str]:
    """Return what the way in which this plan's rounds begin and end may tell."""
    if plan.privacy.adjacency != "add_remove":
        return [FIRST_ANSWERS] if plan.run.over_selection > 1 else []
    secret = [CALLED_WHEN] if plan.secret else []
    threshold = [*secret, *([THRESHOLD] if plan.run.min_available is not None else [])]
    return [*threshold, UNSCHEDULED if plan.run.round_seconds is None else SCHEDULED]
