"""The plan of a Flower app: from keywords, from a plan file, and from `dp.*` keys of Flower's run configuration."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldfare.errors import BadInput, WrongForm
from fieldfare.keywords import DEFAULT_MECHANISM, merged
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec, PrivacySpec, RunSpec
from fieldfare_server.files.plan_file import plan_of

# How the keys of Flower's run configuration begin that this strategy reads.
PREFIX = "dp."

# Keywords that are a table.
_TABLES = ("mechanism", "clip", "server_optimizer", "participation", "availability", "metrics", "aggregation", "tuning")
_PLACES = dict.fromkeys(PrivacySpec.model_fields, "privacy") | dict.fromkeys(RunSpec.model_fields, "run")
# The keywords that describe a plan.
KEYWORDS = tuple(name for name in (*_PLACES, *_TABLES) if name not in ("task", "evaluate_every"))
# FedAvg's arguments that a private run cannot honour, and what comes nearest.
FLOWERS = {
    "fraction_train": "cohort",
    "fraction_evaluate": "metrics={'show': {'accuracy': [0, 1]}} beside fraction_evaluate=1.0; or evaluate_fn",
    "min_train_nodes": "cohort, min_reports",
    "min_evaluate_nodes": "evaluate_fn, on the server",
    "min_available_nodes": "min_available",
    "weighted_by_key": "leave it out",
    "train_metrics_aggr_fn": "leave it out",
    "evaluate_metrics_aggr_fn": "evaluate_fn, on the server",
}


# Arguments of Flower's strategies, wrappers and `start` that have another name or place here.
RENAMED = {
    name: near
    for names, near in {
        "clipping_norm": "clip",
        "num_sampled_clients fraction_fit min_fit_clients": "cohort",
        "num_rounds": "rounds",
        "strategy": "base",
        "min_available_clients": "min_available",
        "initial_arrays initial_parameters": "initial_arrays, an argument of start",
        "evaluate_fn train_config evaluate_config": "the argument of start with this name",
        "proximal_mu on_fit_config_fn": "base=, or train_config, an argument of start",
        "eta eta_l beta_1 beta_2 tau": "server_optimizer={'kind': 'fedadam', 'learning_rate': 0.1}",
        "server_learning_rate server_momentum": "server_optimizer={'kind': 'sgd', 'momentum': 0.9}",
    }.items()
    for name in names.split()
}


def refuse_flowers(name: str, value: object, of: str = "") -> BadInput:
    """Return the refusal of an argument of FedAvg's that a private run cannot honour; `of` stands before its name."""
    why = "clients' metrics, example counts and shares of nodes would leave un-noised or weigh users differently."
    return BadInput(f"{of}{name} = {value!r}", why, FLOWERS[name], code="keyword-value")


def refuse_unknown(name: str, value: object, known: tuple[str, ...]) -> BadInput:
    """Return the refusal of a keyword that nothing here reads."""
    if name in FLOWERS:
        return refuse_flowers(name, value)
    near = RENAMED.get(name) or next(iter(difflib.get_close_matches(name, known, n=1)), ", ".join(known))
    return BadInput(f"{name} = {value!r}", "there is no such keyword.", near, code="keyword-unknown")


def read_run_config(run_config: Mapping[str, Any], strategy_keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the `dp.*` keys of Flower's run configuration as keywords; dotted keys become tables, empty ones
    are left out.

    strategy_keys: what the strategy takes besides the plan. Raises `BadInput` for an unknown key.
    """
    keywords: dict[str, Any] = {}
    for key, value in run_config.items():
        if not key.startswith(PREFIX) or value == "":
            continue
        name, *path = key.removeprefix(PREFIX).split(".")
        known = (*KEYWORDS, *strategy_keys)
        if name not in known or len(path) > 1 or (path and name not in _TABLES):
            near = difflib.get_close_matches(name, known, n=1) or [", ".join(known)]
            what, why = f"run-config {key} = {value!r}", "there is no such key."
            raise BadInput(what, why, PREFIX + near[0], code="run-config-unknown")
        if path:
            table = keywords.setdefault(name, {})
            if not isinstance(table, dict):
                why = f"{PREFIX}{name} is given as well."
                raise BadInput(f"run-config {key}", why, "one of the two", code="run-config-twice")
            table[path[0]] = value
        else:
            keywords[name] = value
    return keywords


def plan_from(
    plan: Plan | str | Path | None,
    keywords: Mapping[str, Any],
    overrides: Mapping[str, Any],
    *,
    rounds: int | None = None,
    timeout: float | None = None,
    nodes: int | None = None,
    evaluate: float = 0.0,
) -> Plan:
    """Return the plan that a run is started with.

    Args:
        plan: a plan, its text, or the path of a plan file; None: `keywords` describe it.
        keywords: what the strategy was made with, without None.
        overrides: what the run configuration says; it wins.
        rounds: `num_rounds` of `start`, which must be the plan's where the plan has one.
        timeout: `timeout` of `start`, in seconds.
        nodes: how many nodes are online, from which the participation limits of keywords without any follow;
            None: not known yet.
        evaluate: FedAvg's `fraction_evaluate`: above 0, the metrics are those of evaluations.

    Raises:
        BadInput: names the key, the value and the nearest allowed value.
    """
    if plan is None:
        table = merged({"mechanism": {"kind": DEFAULT_MECHANISM}}, keywords, _PLACES)
    else:
        if keywords:
            name, value = next(iter(keywords.items()))
            near = "one of the two; or dp.* in run_config"
            raise BadInput(f"{name} = {value!r}", "plan= says it already.", near, code="plan-says-already")
        given = plan if isinstance(plan, Plan) else plan_of(str(plan))
        if given.run.task or given.task:
            what, why = f"run.task = {given.run.task!r}", "this strategy trains initial_arrays."
            raise BadInput(what, why, "leave it out", code="task-beside-arrays")
        if given.client != ClientSpec():
            why = "the app's own ClientApp trains in its own way."
            raise BadInput("client", why, "leave the table out", code="client-table")
        table = given.model_dump(mode="json", exclude_none=True)
    table = merged(table, overrides, _PLACES)
    metrics = table.get("metrics") or {}
    if not isinstance(metrics, Mapping):
        raise WrongForm(f"metrics = {metrics!r}"[:200], "must be a table.", 'metrics={"show": {"accuracy": [0, 1]}}')
    if metrics.get("rows") is not None:
        raise BadInput("metrics.rows", "a Flower app measures in its own way.", "leave it out", code="client-table")
    if evaluate:
        if not metrics or isinstance(evaluate, bool) or not 0 < evaluate <= 1:
            raise refuse_flowers("fraction_evaluate", evaluate)
        table["metrics"] = {**metrics, "evaluate": True}
    table.setdefault("privacy", {})  # so that each key that it lacks is named
    run = table.setdefault("run", {})
    if rounds is not None and run.setdefault("rounds", rounds) != rounds:
        why = f"the plan has {run['rounds']} rounds."
        raise BadInput(f"num_rounds = {rounds}", why, str(run["rounds"]), code="num-rounds-differ")
    if timeout is not None:
        run["round_timeout"] = timeout
    if "participation" not in table and nodes is not None:
        aggregation = table.get("aggregation")
        party = isinstance(aggregation, Mapping) and aggregation.get("blinder")  # it is a node, and no user
        table["participation"] = spread_participation(run, nodes - 1 if party else nodes)
    return Plan.parse(table)


def spread_participation(run: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """Return the participation in which `nodes` users take turns: each again only when all others could have."""
    try:
        asked = math.ceil(int(run["cohort"]) * float(run.get("over_selection", 1.0)))
        separation = max(1, min(int(run["rounds"]), nodes // max(1, asked)))
    except (KeyError, TypeError, ValueError):
        return {}  # the plan is refused for what is wrong with these keys
    return {"scheme": "min-separation", "separation": separation}
