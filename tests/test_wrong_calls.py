"""What people write at first, and the house's sentence that answers it: what, why, and the nearest that is allowed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import fieldfare as ff
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, Refused
from fieldfare.mechanisms.registry import kinds
from support.flower_app import vector_app, vector_arrays
from support.refusals import coded
from support.stranger import stranger

PLAN: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-4, "rounds": 4, "cohort": 10, "task": "digits"}
PLAN |= {"accept_noise": True}  # small, so mostly noise
RUN: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "cohort": 3, "population": "p", "budget": 8.0}


def start(**changes: Any) -> Any:
    return ff.PrivateStrategy(**RUN).start(
        **{"grid": ff.LocalGrid(vector_app, 3), "initial_arrays": vector_arrays(), "num_rounds": 1, **changes}
    )


def new_ledger() -> ff.Ledger:
    folder = Path(os.environ["FIELDFARE_HOME"])
    folder.mkdir(parents=True)
    return ff.Ledger.open(f"sqlite:///{folder / 'ledger.sqlite3'}", create=True)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a table is no plan": (lambda: ff.price({"epsilon": 4}), "takes plans, not a dict"),  # type: ignore[call-overload]
    "a name is no plan": (lambda: ff.price("nu"), "takes plans, not a str"),  # type: ignore[call-overload]
    "a second that is none": (lambda: ff.price(ff.Plan(**PLAN), None), "takes plans, not a NoneType"),  # type: ignore[call-overload]
    "a table to simulate": (lambda: ff.simulate({"epsilon": 4}), "takes plans, not a dict"),  # type: ignore[arg-type]
    "nothing to simulate": (lambda: ff.simulate(), "needs plans, or resume=RUN"),
    "a budget in words": (lambda: ff.simulate(ff.Plan(**PLAN), budget="10"), r"budget = '10': is epsilon"),  # type: ignore[arg-type]
    "three budgets": (lambda: ff.simulate(ff.Plan(**PLAN), budget=(1, 2, 3)), r"is epsilon, or \(epsilon, delta\)"),  # type: ignore[arg-type]
    "no node": (lambda: ff.simulate(ff.Plan(**PLAN), budget=9.0, nodes=0), "nodes = 0: must be"),
    "no budget": (lambda: ff.simulate(ff.Plan(**PLAN)), r"budget=[\d.]+"),
    "a plan by position": (lambda: ff.Plan("digits"), r"Plan\('digits'\): a plan is made by keywords"),
    "a task that is none": (lambda: ff.Plan(**{**PLAN, "task": "digit"}), "Nearest allowed: digits"),
    "a task of no class": (lambda: ff.Plan(**{**PLAN, "task": 3}), "is a int, not a fieldfare.Task"),
    "a keyword that is none": (lambda: ff.Plan(**PLAN, epsilom=4), "Nearest allowed: epsilon"),
    "a mechanism that is none": (lambda: ff.Plan(**PLAN, mechanism="bllt"), "mechanism"),
    "epsilon in words": (lambda: ff.Plan(**{**PLAN, "epsilon": "four"}), "epsilon"),
    "epsilon below 0": (lambda: ff.Plan(**{**PLAN, "epsilon": -1}), "epsilon"),
    "half a user": (lambda: ff.Plan(**{**PLAN, "cohort": 2.5}), "cohort"),
    "no delta": (lambda: ff.Plan(task="digits", epsilon=4, rounds=2, cohort=3), "delta"),
    "delta of 1": (lambda: ff.Plan(**{**PLAN, "delta": 1.0}), "delta"),
    "epsilon and noise": (lambda: ff.Plan(**PLAN, noise_multiplier=2), "noise_multiplier"),
    "a participation that is none": (lambda: ff.Plan(**PLAN, participation="often"), "participation"),
    "a clip of 0": (lambda: ff.Plan(**PLAN, clip=0), "clip"),
    "a strategy's slip": (lambda: ff.PrivateStrategy(**RUN, epsilom=8), "Nearest allowed: epsilon"),
    "FedAvg's fraction": (lambda: ff.PrivateStrategy(**RUN, fraction_train=0.5), "Nearest allowed: cohort"),
    "a dialect that is none": (lambda: ff.PrivateStrategy(**RUN, dialect="many"), "'plain' or 'cohort'"),  # type: ignore[arg-type]
    "buffers that are none": (lambda: ff.PrivateStrategy(**RUN, buffers="none"), "'initial' or 'private'"),  # type: ignore[arg-type]
    "a strategy's budget in words": (lambda: ff.PrivateStrategy(**{**RUN, "budget": "8"}), "budget = '8'"),
    "a plan and its keywords": (lambda: ff.PrivateStrategy(plan=ff.Plan(**PLAN), epsilon=2), "plan= says it already"),
    "a plan with a task": (lambda: ff.PrivateStrategy(plan=ff.Plan(**PLAN)), "this strategy trains initial_arrays"),
    "a grid of no node": (lambda: ff.LocalGrid(vector_app, 0), "nodes = 0"),
    "check without a loop": (lambda: ff.private.check(lambda: None, ["a", "b"]), "ff.private.check"),
    "no rounds": (
        lambda: ff.PrivateStrategy(**RUN).start(ff.LocalGrid(vector_app, 3), vector_arrays(), num_rounds=0),
        "rounds",
    ),
    "nothing at all": (ff.PrivateStrategy, r"population: is required.*\n.*delta: is required"),
    "a clip of Flower's wrapper": (lambda: ff.PrivateStrategy(**RUN, clipping_norm=1.0), "Nearest allowed: clip"),
    "a cohort of Flower's wrapper": (
        lambda: ff.PrivateStrategy(**RUN, num_sampled_clients=3),
        "Nearest allowed: cohort",
    ),
    "a strategy of Flower's wrapper": (lambda: ff.PrivateStrategy(**RUN, strategy=3), "Nearest allowed: base"),
    "an on_round that is none": (lambda: ff.PrivateStrategy(**RUN, on_round=3), "on_round = 3: is no function"),  # type: ignore[arg-type]
    "an on_round of one argument": (
        lambda: ff.PrivateStrategy(**RUN, on_round=lambda arrays: None),  # type: ignore[arg-type,misc]
        r"Nearest allowed: on_round\(round, arrays, metrics\)",
    ),
    "an evaluate_fn of one argument": (
        lambda: start(evaluate_fn=lambda arrays: None),
        r"Nearest allowed: evaluate_fn\(round, arrays\)",
    ),
    "an evaluation of Flower's older interface": (
        lambda: start(evaluate_fn=lambda round, arrays: (0.1, {"accuracy": 0.9})),
        "it returned a tuple.*Nearest allowed: MetricRecord",
    ),
    "no grid": (lambda: start(grid=None), "grid = None: reaches no nodes"),
    "a strategy by position": (lambda: ff.PrivateStrategy(FedAvg()), "made by keywords.*Nearest allowed: base="),
    "a number by position": (lambda: ff.PrivateStrategy(4.0), "made by keywords"),
    "a home in numbers": (lambda: ff.PrivateStrategy(**RUN, home=3), "home = 3"),  # type: ignore[arg-type]
    "a name to compare": (lambda: ff.compare("nu", "tree"), "takes plans, not a str"),  # type: ignore[arg-type]
    "metrics in words": (
        lambda: ff.PrivateStrategy(**RUN, metrics="accuracy"),
        "metrics = .*: must be a table",
    ),
    "a configuration in words": (lambda: start(train_config="lr"), "train_config = 'lr'"),
    "a name that is tied": (
        lambda: ff.PrivateStrategy(**RUN, tied="w").start(ff.LocalGrid(vector_app, 3), vector_arrays()),
        "ties no names",
    ),
    "no app": (lambda: ff.LocalGrid(None, 3), "client_app = None"),  # type: ignore[arg-type]
    "an app and its nodes, turned round": (lambda: ff.LocalGrid(3, vector_app), "client_app = 3"),  # type: ignore[arg-type]
    "nodes in words": (lambda: ff.LocalGrid(vector_app, "3"), "nodes = '3'"),  # type: ignore[arg-type]
    "half a node": (lambda: ff.LocalGrid(vector_app, 2.5), "nodes = 2.5"),  # type: ignore[arg-type]
    "a run's configuration in words": (lambda: ff.LocalGrid(vector_app, 3, "lr"), "run_config = 'lr'"),  # type: ignore[arg-type]
    "a client's app in the server's place": (
        lambda: ff.LocalGrid(vector_app, 3).run_app(vector_app),  # type: ignore[arg-type]
        "is not a ServerApp",
    ),
    "no ledger": (lambda: ff.Ledger.open(None), "ledger URL = None"),  # type: ignore[arg-type]
    "a ledger's budget in words": (lambda: new_ledger().create_population("p", "8", 1e-5, actor="a"), "epsilon = '8'"),  # type: ignore[arg-type]
    "a budget and its name, turned round": (
        lambda: new_ledger().create_population(8.0, "p", 1e-5, actor="a"),  # type: ignore[arg-type]
        "epsilon = 'p'",
    ),
    "a plan file's text, parsed": (lambda: ff.Plan.parse("epsilon = 1"), "is a str, not a mapping.*from_toml"),  # type: ignore[arg-type]
    "a plan file's path": (lambda: ff.Plan.from_toml(Path("plan.toml")), "is a PosixPath, not text.*read_text"),  # type: ignore[arg-type]
    "no run": (lambda: new_ledger().run(None), "the ledger has none of that id"),  # type: ignore[arg-type]
    "a timeout in words": (lambda: start(timeout="10"), "timeout = '10'"),
    "the older interface": (
        lambda: ff.PrivateStrategy(**RUN).initialize_parameters(client_manager=None),
        "older interface.*ServerApp",
    ),
    "a configuration of nothing": (lambda: start(train_config={"lr": None}), "train_config = {'lr': None}"),
    "a run in numbers": (
        lambda: ff.PrivateStrategy(**RUN, run=5).start(ff.LocalGrid(vector_app, 3), vector_arrays()),
        "run id 5",
    ),
    "a kind's name alone": (lambda: ff.mechanisms.build("blt", rounds=3), "must be a table with a kind"),  # type: ignore[arg-type]
    "rows of nobody": (lambda: ff.UserTable.grouped(["ann"], {"x": np.zeros(2)}), "has 2 rows, and 1 have a user"),
    "client evaluation": (lambda: ff.PrivateStrategy(**RUN, fraction_evaluate=0.5), "metrics=.*or evaluate_fn"),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_gets_the_houses_sentence(call: str) -> None:
    made, says = WRONG[call]
    with pytest.raises(Refused, match=says):
        made()


def test_a_mod_that_is_written_as_a_decorator_says_what_the_decorators_are() -> None:
    with pytest.raises(TypeError, match=r"@ff\.private\.train\(build\) and @ff\.private\.users"):
        ff.private(lambda message, context: message)  # type: ignore[operator]


def test_a_module_makes_no_model() -> None:
    with pytest.raises(TypeError, match=r"Linear is not a callable that makes the model, such as its class or lambda"):
        ff.private.train(torch.nn.Linear(2, 2))


def test_several_plans_have_several_prices() -> None:
    one, two = (ff.Plan(**{**PLAN, "mechanism": kind}) for kind in ("independent", "tree"))
    costs = ff.price(one, two)
    assert [cost.noise_multiplier for cost in costs] == [
        ff.price(one).noise_multiplier,
        ff.price(two).noise_multiplier,
    ]


@pytest.mark.parametrize("kind", kinds())
def test_a_price_can_be_cached_and_sent_to_another_process(kind: str) -> None:
    needed = {
        "banded": {"bands": 3},
        "banded-inverse": {"bands": 3},
        "spectral": {"eigenvalues": [1.0, 0.1], "learning_rate": 0.1},
    }
    plan = ff.Plan(**{**PLAN, "mechanism": {"kind": kind, **needed.get(kind, {})}, "rounds": 8})
    cost = cost_of(plan)
    again = pickle.loads(pickle.dumps(cost))
    assert again.noise_multiplier == cost.noise_multiplier
    assert again.loss == cost.loss


def test_first_runs_at_once_share_one_population(tmp_path: Path) -> None:
    from fieldfare_server.ledger import Ledger

    wait, ended = threading.Barrier(3), list[BaseException | None]()
    create = Ledger.create_population

    def together(self: Ledger, *arguments: Any, **keywords: Any) -> Any:
        wait.wait(30)
        return create(self, *arguments, **keywords)

    def run() -> None:
        try:
            strategy = ff.PrivateStrategy(**{**RUN, "budget": 20.0}, mechanism="independent", home=tmp_path)
            strategy.start(ff.LocalGrid(vector_app, 3), vector_arrays(), num_rounds=1)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "create_population", together)
        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert ended == [None] * 3
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
        (population,) = ledger.populations()
        assert population.epsilon == 20.0
        assert len(ledger.runs().items) == 3


def test_a_run_that_has_ended_says_so_when_it_is_resumed(tmp_path: Path) -> None:
    plan = ff.Plan(**{**PLAN, "rounds": 1, "mechanism": "independent"})
    (run,) = ff.simulate(plan, budget=20.0, ledger=tmp_path, progress=False)
    with pytest.raises(BadInput, match=rf"run {run.id}: it has ended \(done\).*a new run"):
        ff.simulate(resume=run.id, ledger=tmp_path)


def test_an_exception_in_this_process_is_shown_with_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Once a place: a round of many nodes shows it once."""
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

    app, server = ClientApp(), ServerApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise ValueError("batches of 64 are empty")

    @server.main()
    def main(grid: Any, context: Context) -> None:
        with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "ValueError")):
            ff.PrivateStrategy(**RUN, mechanism="independent").start(grid, vector_arrays(), num_rounds=1)

    ff.LocalGrid(app, 4).run_app(server)
    assert caplog.text.count('raise ValueError("batches of 64 are empty")') == 1
    assert caplog.text.count("ValueError at test_wrong_calls.py") >= 2


BROKEN = """
from flwr.clientapp import ClientApp
from support.flower_app import vector_arrays
import fieldfare as ff

app = ClientApp()

@app.train()
def train(message, context):
    raise ValueError("batches of 64 are empty")

ff.PrivateStrategy(epsilon=4, delta=1e-5, cohort=3, population="p", budget=8).start(
    ff.LocalGrid(app, 4), vector_arrays(), num_rounds=1
)
"""


def test_a_script_shows_an_exception_of_its_app(tmp_path: Path) -> None:
    """Where nothing has set logging up, as in no test that pytest's own handler watches."""
    with stranger(tmp_path / "account") as env:
        path = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", BROKEN]
        done = subprocess.run(command, env={**env, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert said.count("ValueError: batches of 64 are empty") == 1, said
    assert "in train" in said
    assert "3 x error code 2 (ValueError)" in said
