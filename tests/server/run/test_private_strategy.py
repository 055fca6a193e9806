"""`PrivateStrategy` in the place of FedAvg, with ClientApps that know nothing of Fieldfare."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import FedAvg, Result

import fieldfare as ff
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare_client.simulation import LocalGrid
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence.identity import GridNode
from fieldfare_server.run.private.plan import plan_from
from fieldfare_server.run.private.shown_rounds import log_summary
from fieldfare_server.run.private.strategy import PrivateStrategy, There, require_keys
from fieldfare_server.run.round.dialects import PlainDialect, same_config
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import assign_roles
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support import flower_app
from support.flower_app import accuracy, initial, vector_app, vector_arrays
from support.refusals import coded

LR = ConfigRecord({"lr": 0.01})


def strategy(home: Path, **changes: Any) -> PrivateStrategy:
    settings: dict[str, Any] = {
        "epsilon": 8.0,
        "delta": 1e-5,
        "cohort": 3,
        "clip": 1.0,
        "mechanism": "independent",
        "population": "clinics",
        "budget": 40.0,
        "home": home,
        "round_timeout": 5.0,
    }
    given = {**settings, **changes}
    return PrivateStrategy(**{name: value for name, value in given.items() if value is not None})


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": accuracy(arrays.to_torch_state_dict(keep_input=True))})


def app_of(reply: Callable[[Message, dict[str, np.ndarray]], Any]) -> ClientApp:
    """A ClientApp whose replies to `vector_arrays` are what `reply` makes of the arrays that it gets."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        made = reply(message, arrays)
        if isinstance(made, Message):
            return made
        content = made if isinstance(made, RecordDict) else RecordDict({"arrays": ArrayRecord(made)})
        return Message(content, reply_to=message)

    return app


def records(**values: np.ndarray) -> dict[str, Array]:
    return {name: Array(np.asarray(value)) for name, value in values.items()}


def without_noise(arrays: ArrayRecord, rounds: int, app: ClientApp, clip: float = 1e20, **roles: Any) -> OwnModel:
    """The same round, dialect and clipping as a run's, without noise and without a ledger."""
    values = OwnModel.read(arrays)
    model = OwnModel(values, assign_roles(values, **roles))
    session = rehearsal(model, rounds, clip)
    FieldfareStrategy(session).take_to_end(LocalGrid(app, 3, {}))
    model.final = session.params  # type: ignore[attr-defined]
    return model


def rehearsal(model: OwnModel, rounds: int = 1, clip: Any = 1e20, **dialect: Any) -> Session:
    """Three users a round, no noise."""
    keywords = {"noise_multiplier": 1.0, "delta": 1e-5, "cohort": 3, "clip": clip, "population": "p"}
    keywords |= {"mechanism": "independent", "min_reports": 2}
    plan = plan_from(None, keywords, {}, rounds=rounds, nodes=3)
    plain = PlainDialect(model, same_config(ConfigRecord({"lr": 0.01})), **dialect)
    return Session.rehearse(plan, noise=False, model=model, dialect=plain)


def final(model: OwnModel) -> dict[str, np.ndarray]:
    return model.complete(model.final)  # type: ignore[attr-defined,no-any-return]


def test_a_run_that_ends_early_spent_what_was_planned_whoever_ended_it(tmp_path: Path) -> None:
    """It said .65 of 4 where the certificate says 4: who asks for the end may have seen the models."""

    def stop(number: int, arrays: ArrayRecord, metrics: MetricRecord) -> None:
        if number == 2:
            with Ledger.open(private._home.ledger) as ledger:
                ledger.request(str(private.run_id), "stop", actor="officer")

    private = strategy(tmp_path, rounds=6, on_round=stop)
    private.start(LocalGrid(flower_app.app, 6, {}), initial(), train_config=ConfigRecord({"lr": 0.01}))
    spent: Any = private.privacy_spent()
    assert (spent.epsilon, spent.num_releases) == (pytest.approx(8.0, rel=1e-6), 2)


# -- an unmodified app -------------------------------------------------------------------------------------------------


def test_an_app_of_a_stranger_becomes_private_by_its_strategy_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three users a round drown in their noise, and it says so before the first one is asked."""
    private = strategy(tmp_path)
    assert private.privacy_spent() is None
    config = ConfigRecord({"lr": 0.01})
    with caplog.at_level(logging.INFO, logger="flwr"):
        result = private.start(
            LocalGrid(flower_app.app, 6, {}), initial(), num_rounds=3, train_config=config, evaluate_fn=evaluate
        )
    assert dict(config) == {"lr": 0.01}  # FedAvg would write the round into the caller's record
    (told,) = (record for record in caplog.records if "signal below noise" in record.message)
    assert caplog.records.index(told) < next(i for i, r in enumerate(caplog.records) if "[ROUND 1/3]" in r.message)
    assert list(result.evaluate_metrics_serverapp) == [0, 1, 2, 3]
    assert list(result.train_metrics_clientapp) == [1, 2, 3]
    assert result.evaluate_metrics_clientapp == {}
    last = result.train_metrics_clientapp[3]
    assert set(last) == {"epsilon", "delta", "rho", "noise-std", "cohort", "reports"}
    assert (last["cohort"], last["reports"]) == (3, 3)
    spent = private.privacy_spent()
    assert type(spent).__module__.startswith("flwr.")
    assert (spent.epsilon, spent.delta, spent.num_releases) == (last["epsilon"], 1e-5, 3)
    assert spent.accounting_method == "gaussian"
    assert 0 < spent.epsilon <= 8.0
    # The whole state dict, in its order and types: buffers keep their initial values.
    before = initial().to_torch_state_dict()
    state = result.arrays.to_torch_state_dict(keep_input=True)
    assert list(state) == list(before)
    assert [t.dtype for t in state.values()] == [t.dtype for t in before.values()]
    flower_app.Net().load_state_dict(state, strict=True)
    assert torch.equal(state["norm.running_var"], before["norm.running_var"])
    assert int(state["norm.num_batches_tracked"]) == 0
    assert not torch.equal(state["first.weight"], before["first.weight"])
    # What another process sees: ledger, model file, verification.
    home = StateDirectory.of(tmp_path)
    with Ledger.open(home.ledger) as ledger:
        run = ledger.run(str(private.run_id))
        assert (run.state, run.next_round, run.plan["run"]["task"]) == ("done", 3, "")
        report = verify(ledger, home.root, recompute=recharge, held=[ledger.head()])
    assert report.ok, str(report.fault)
    from safetensors.torch import load_file

    stored = load_file(tmp_path / str(private.run_id) / "model.safetensors")
    assert {name: value.tolist() for name, value in stored.items()} == {n: t.tolist() for n, t in state.items()}
    lines = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    for line in (
        "Starting PrivateStrategy strategy:",
        "\t├── Number of rounds: 3",
        "\t├── ConfigRecord (train): {'lr': 0.01}",
        "\t├── ConfigRecord (evaluate): (empty!)",
        "[ROUND 2/3]",
        "configure_train: Sampled 3 nodes (out of 6)",
        "aggregate_train: Received 3 results and 0 failures",
        "Global evaluation",
        "Final results:",
    ):
        assert line in lines
    assert any(line.startswith("Privacy spent: epsilon=") and line.endswith("after 3 releases") for line in lines)
    assert sum("keep their initial values" in line for line in lines) == 1


def test_nodes_without_a_key_are_refused_and_not_counted() -> None:
    """Under `add_remove` how many nodes there are is how many users there are."""
    there = There([GridNode(2, b"-----BEGIN PUBLIC KEY-----"), GridNode(3, b""), GridNode(4, b"")], "real")
    with pytest.raises(BadInput, check=coded("not-given", "public key")) as refused:
        require_keys(there)
    assert not set("234") & set(str(refused.value).partition("Nearest")[0])
    require_keys(There(there.nodes[:1], "real"))
    require_keys(There(there.nodes, "simulated"))


def test_a_run_is_resumed_exactly(tmp_path: Path) -> None:
    """Crash in `evaluate_fn` after round 2: no committed round is lost, and the rest is what it would have been."""

    def run(home: Path, crash: bool) -> tuple[Result, list[int]]:
        seen: list[int] = []

        def score(number: int, arrays: ArrayRecord) -> None:
            seen.append(number)
            if crash and number == 2 and len(seen) == 3:
                raise RuntimeError("the evaluation broke")

        def start() -> Result:
            chosen = strategy(home, run="one", noise_seed=5, mechanism={"kind": "nu", "nu": 0.1})
            return chosen.start(LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=4, evaluate_fn=score)

        if crash:
            with pytest.raises(RuntimeError, match="the evaluation broke"):
                start()
        return start(), seen

    straight, _ = run(tmp_path / "a", False)
    resumed, seen = run(tmp_path / "b", True)
    assert seen == [0, 1, 2, 3, 4]
    for name in straight.arrays:
        assert straight.arrays[name].data == resumed.arrays[name].data
    assert list(resumed.train_metrics_clientapp) == [1, 2, 3, 4]
    for number, metrics in straight.train_metrics_clientapp.items():
        assert dict(resumed.train_metrics_clientapp[number]) == dict(metrics)


def test_another_plan_or_another_model_does_not_continue_a_run(tmp_path: Path) -> None:
    def broken(number: int, arrays: ArrayRecord) -> None:
        if number:
            raise RuntimeError("stop here")

    grid = LocalGrid(vector_app, 3, {})
    with pytest.raises(RuntimeError):
        strategy(tmp_path, run="one").start(grid, vector_arrays(), num_rounds=3, evaluate_fn=broken)
    with pytest.raises(BadInput, check=coded("differs", "run")):
        strategy(tmp_path, run="one", clip=2.0).start(grid, vector_arrays(), num_rounds=3)
    with pytest.raises(BadInput, check=coded("differs", "num_rounds = 7")):
        PrivateStrategy(resume="one", home=tmp_path).start(grid, vector_arrays(), num_rounds=7)
    other = ArrayRecord({"w": Array(np.zeros((2, 2), np.float32))})
    with pytest.raises(BadInput, check=coded("differs", "initial_arrays")):
        PrivateStrategy(resume="one", home=tmp_path).start(grid, other)
    done = PrivateStrategy(resume="one", home=tmp_path).start(grid, vector_arrays())
    assert list(done.train_metrics_clientapp) == [1, 2, 3]
    with pytest.raises(BadInput, check=coded("not-now", "run")):
        PrivateStrategy(resume="one", home=tmp_path).start(grid, vector_arrays())


@pytest.mark.parametrize("nodes", [2, 4])
def test_other_nodes_of_one_process_do_not_continue_a_run_and_leave_it_to_its_own(
    tmp_path: Path, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on with strangers, whom the population got to know, and nobody was told."""
    monkeypatch.setenv("FIELDFARE_BUDGET", "")  # no budget of a node's own, for the nodes either

    def broken(number: int, arrays: ArrayRecord) -> None:
        if number:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError):
        strategy(tmp_path, run="one", cohort=2).start(
            LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=3, evaluate_fn=broken
        )
    resumed = PrivateStrategy(resume="one", home=tmp_path)
    with pytest.raises(BadInput, check=coded("other-users", "run one")):
        resumed.start(LocalGrid(vector_app, nodes, {}), vector_arrays())
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        assert (ledger.run("one").ended_at, ledger.population("clinics").users) == (None, 3)
    done = PrivateStrategy(resume="one", home=tmp_path).start(LocalGrid(vector_app, 3, {}), vector_arrays())
    assert list(done.train_metrics_clientapp) == [1, 2, 3]


def test_a_node_that_leaves_out_whom_its_own_budget_refuses_is_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(number: int, arrays: ArrayRecord) -> None:
        if number:
            raise RuntimeError("stop here")

    monkeypatch.setenv("FIELDFARE_BUDGET", "its own file")  # which these apps, that have no mod, do not read
    with pytest.raises(RuntimeError):
        strategy(tmp_path, run="one", cohort=2).start(
            LocalGrid(vector_app, 4, {}), vector_arrays(), num_rounds=2, evaluate_fn=broken
        )
    done = PrivateStrategy(resume="one", home=tmp_path).start(LocalGrid(vector_app, 3, {}), vector_arrays())
    assert list(done.train_metrics_clientapp) == [1, 2]


@pytest.mark.parametrize("kind", ["local", "simulated", "real"])
def test_a_summary_says_whose_users_share_what_the_app_keeps(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A scaler that an app fits once moved the others' updates by 16 clip norms, and nothing said a word."""
    plan = plan_from(None, {"epsilon": 8, "delta": 1e-5, "cohort": 3, "population": "p"}, {}, rounds=1, nodes=3)
    values = OwnModel.read(vector_arrays())
    model = OwnModel(values, assign_roles(values))
    for dialect, shared in (("plain", kind != "real"), ("cohort", False)):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="flwr"):
            log_summary(plan, model, dialect, kind, Path())
        (line,) = [each for each in caplog.messages if "Dialect" in each]
        assert ("share" in line) is shared


def test_a_budget_below_the_run_makes_no_population(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only an officer could raise it then: the app that was put right was refused as well."""
    grid = LocalGrid(vector_app, 3, {})
    with pytest.raises(PrivacyBudgetExhausted, check=coded("privacy-budget-exhausted", "budget = 4", "budget = 8")):
        strategy(tmp_path, budget=4).start(grid, vector_arrays(), num_rounds=1)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert not ledger.populations()
    strategy(tmp_path, budget=16).start(grid, vector_arrays(), num_rounds=1)
    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy(tmp_path, budget=24, epsilon=1).start(grid, vector_arrays(), num_rounds=1)
    assert "budget is epsilon 16, which budget=24 does not change" in caplog.text


def test_what_the_apps_own_code_raises_says_how_the_run_goes_on(tmp_path: Path) -> None:
    """Nothing told the run's id: who began anew left what it had reserved."""
    made = strategy(tmp_path, on_round=lambda number, arrays, metrics: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        made.start(LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=2)
    (note,) = caught.value.__notes__
    assert f"resume={made.run_id!r}" in note
    assert f"abandon {made.run_id}" in note
    again = PrivateStrategy(resume=made.run_id, home=tmp_path)
    assert list(again.start(LocalGrid(vector_app, 3, {}), vector_arrays()).train_metrics_clientapp) == [1, 2]


def test_an_exhausted_budget_is_flowers_own_error_with_the_result(tmp_path: Path) -> None:
    grid = LocalGrid(vector_app, 3, {})
    strategy(tmp_path, budget=9.0).start(grid, vector_arrays(), num_rounds=1)
    with pytest.raises(PrivacyBudgetExhausted) as caught:
        strategy(tmp_path, budget=None).start(
            grid, vector_arrays(), num_rounds=1, evaluate_fn=lambda n, a: MetricRecord()
        )
    assert isinstance(caught.value, BudgetRefused)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert list(error.result.evaluate_metrics_serverapp) == [0]
        assert (type(error), error.exit_code, error.what) == (type(caught.value), 200, caught.value.what)


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_honoured_is_refused_before_any_charge(tmp_path: Path) -> None:
    grid = LocalGrid(vector_app, 3, {})
    with pytest.raises(
        BadInput, check=coded("not-found", "`fieldfare population create clinics --epsilon 16 --delta 1e-5`")
    ):
        strategy(tmp_path, budget=None).start(grid, vector_arrays(), num_rounds=2)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BadInput, check=coded("conflict", "evaluate_config", "leave it out")):
        strategy(tmp_path).start(grid, vector_arrays(), num_rounds=2, evaluate_config=ConfigRecord({"x": 1}))
    with pytest.raises(BadInput, check=coded("num-rounds-differ", "num_rounds = 50")):
        strategy(tmp_path, rounds=3).start(grid, vector_arrays(), num_rounds=50)
    for name, value in (("fraction_evaluate", 0.5), ("min_train_nodes", 2), ("weighted_by_key", "num-examples")):
        with pytest.raises(BadInput, check=coded("keyword-value")):
            strategy(tmp_path, **{name: value})
    strategy(tmp_path, fraction_evaluate=0.0)
    for name, near in (
        ("cohrt", "cohort."),
        ("fraction_fit", "cohort."),
        ("eta", "server_optimizer="),
        ("evaluate_fn", "the argument of start"),
        ("proximal_mu", "base="),
    ):
        with pytest.raises(BadInput, check=coded("keyword-unknown", f"Nearest allowed: {near}")):
            strategy(tmp_path, **{name: 3})
    with pytest.raises(BadInput, check=coded("plan-says-already", "one of the two")):
        PrivateStrategy(plan="x.toml", epsilon=3.0)
    with pytest.raises(BadInput, check=coded("out-of-range", "budget")):
        strategy(tmp_path, budget=-1.0)
    with pytest.raises(BadInput, check=coded("unknown", "dialect")):
        strategy(tmp_path, dialect="flower")
    with pytest.raises(BadInput, check=coded("array-unusable", "initial_arrays")):
        strategy(tmp_path).start(grid, ArrayRecord({"s": Array(np.array(["a"]))}), num_rounds=1)
    assert not list(tmp_path.iterdir())


def test_participation_that_needs_more_rounds_than_flowers_three_waits_for_start(tmp_path: Path) -> None:
    grid, often = LocalGrid(vector_app, 3, {}), {"scheme": "min-separation", "separation": 1, "max_participations": 4}
    made = strategy(tmp_path, participation=often)
    with pytest.raises(BadInput, check=coded("participation-does-not-fit", "3 rounds")):
        made.start(grid, vector_arrays())
    assert len(made.start(grid, vector_arrays(), num_rounds=4).train_metrics_clientapp) == 4


def test_a_delta_that_publishes_a_node_is_refused_or_accepted_by_a_person(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the commands refused it: an app released at delta .9 for three users, without a word."""
    grid, large = LocalGrid(vector_app, 3, {}), {"epsilon": 1.0, "delta": 0.5}
    with pytest.raises(
        BadInput, check=coded("out-of-range", "privacy.delta = 0.5", "of 3", "--accept-delta", "accept_delta=True")
    ):
        strategy(tmp_path, **large).start(grid, vector_arrays(), num_rounds=1)
    assert not list(tmp_path.iterdir())
    strategy(tmp_path, **large, accept_delta=True).start(grid, vector_arrays(), num_rounds=1)
    assert "publishing one user at random of 3 has delta" in caplog.text


def test_values_beyond_float32_and_noise_beyond_an_odometer_are_refused_before_a_run(tmp_path: Path) -> None:
    grid = LocalGrid(vector_app, 3, {})
    with pytest.raises(BadInput, check=coded("array-values", "initial_arrays", "3.4e38")):
        strategy(tmp_path).start(grid, ArrayRecord([np.full(3, 1e300)]), num_rounds=1)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BadInput, check=coded("out-of-range", "mu^2 = 1e+06", "262144")):
        strategy(tmp_path, epsilon=None, noise_multiplier=1e-3, budget=1e9).start(grid, vector_arrays(), num_rounds=1)
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as ledger:
        assert not ledger.runs().items


def test_arrays_whose_columns_come_first_are_trained(tmp_path: Path) -> None:
    """As `weight.T` and the coefficients of scikit-learn: the run ended in safetensors' words."""
    first = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    app = app_of(lambda message, values: records(**{name: np.asfortranarray(value) for name, value in values.items()}))
    result = strategy(tmp_path, clip=1e-6).start(LocalGrid(app, 3), ArrayRecord([first]), num_rounds=1)
    assert np.allclose(result.arrays.to_numpy_ndarrays()[0], first, atol=1e-4)


def test_an_array_without_numbers_ends_no_run(tmp_path: Path) -> None:
    """Its model had no digest: the run ended in torch's words, charged."""
    arrays = ArrayRecord({"none": Array(np.zeros(0, np.float32)), "w": Array(np.zeros(3, np.float32))})
    result = strategy(tmp_path).start(
        LocalGrid(app_of(lambda message, values: records(**values)), 3), arrays, num_rounds=1
    )
    assert [value.shape for value in result.arrays.to_numpy_ndarrays()] == [(0,), (3,)]


def test_an_evaluation_that_raises_at_round_0_costs_nothing(tmp_path: Path) -> None:
    def broken(number: int, arrays: ArrayRecord) -> None:
        raise RuntimeError("no such file")

    with pytest.raises(RuntimeError, match="no such file"):
        strategy(tmp_path).start(LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=1, evaluate_fn=broken)
    assert not list(tmp_path.iterdir())


def test_the_run_configuration_overrides_and_unknown_keys_are_refused(tmp_path: Path) -> None:
    config = {
        "lr": 0.1,
        "dp.epsilon": 4,
        "dp.mechanism.kind": "nu",
        "dp.mechanism.nu": 0.5,
        "dp.resume": "",
        "dp.clip": 2,
    }
    private = strategy(tmp_path, run_config=config)
    private.start(LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=2)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        plan = ledger.run(str(private.run_id)).plan
    assert plan["privacy"]["epsilon"] == 4.0
    assert plan["clipping"] == {"kind": "flat", "norm": 2}
    assert (plan["mechanism"]["kind"], plan["mechanism"]["nu"]) == ("nu", 0.5)
    with pytest.raises(BadInput, check=coded("run-config-unknown", "dp.epsilom = 3", "Nearest allowed: dp.epsilon")):
        strategy(tmp_path, run_config={"dp.epsilom": 3})
    with pytest.raises(BadInput, check=coded("values-conflict")):
        strategy(tmp_path, run_config={"dp.epsilon": True})
    with pytest.raises(BadInput, check=coded("run-config-unknown", "dp.epsilon.x")):
        strategy(tmp_path, run_config={"dp.epsilon.x": 3})


def test_a_plan_file_a_text_and_keywords_make_the_same_plan(tmp_path: Path) -> None:
    text = """
privacy = {population = "clinics", epsilon = 8, delta = 1e-5}
run = {rounds = 2, cohort = 3, round_timeout = 5}
mechanism = {kind = "independent"}
participation = {scheme = "min-separation", separation = 1}
"""
    file = tmp_path / "plan.toml"
    file.write_text(text)
    digests = set()
    for index, private in enumerate(
        (
            PrivateStrategy(plan=text, budget=40, home=tmp_path / "0"),
            PrivateStrategy(plan=file, budget=40, home=tmp_path / "1"),
            strategy(tmp_path / "2", rounds=2, clip={"kind": "flat", "norm": 1.0}),
        )
    ):
        private.start(LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=2)
        with Ledger.open(StateDirectory.of(tmp_path / str(index)).ledger) as ledger:
            digests.add(ledger.run(str(private.run_id)).plan_digest)
    assert len(digests) == 1
    with pytest.raises(BadInput, check=coded("task-beside-arrays", "run.task")):
        PrivateStrategy(plan=text.replace("rounds = 2", 'rounds = 2, task = "digits"'))


# -- the same model as FedAvg's ----------------------------------------------------------------------------------------


def test_the_vectors_of_the_specification() -> None:
    model = final(without_noise(vector_arrays(), 1, vector_app))
    np.testing.assert_allclose(
        model["w"].reshape(-1), [1.2000000477, 1.6000000238, 3.5999999046, 5.4000000954], rtol=0, atol=5e-11
    )
    assert model["b"].tolist() == [2.5, 1.5]
    assert model["n"] == 5
    assert model["n"].dtype == np.int64
    for clip, w, b in (
        (1.0, [0.0616626491442, -0.123325294205, 0.184987914763, 0.431638462334], 0.616626426102),
        (2.0, [0.115550199912, -0.231100391657, 0.346650543665, 0.80885126384], 1.15550188698),
    ):
        clipped = final(without_noise(vector_arrays(), 1, vector_app, clip))
        start = {name: array.numpy() for name, array in vector_arrays().items()}
        np.testing.assert_allclose((clipped["w"] - start["w"]).reshape(-1), w, rtol=0, atol=3e-7)
        np.testing.assert_allclose(clipped["b"] - start["b"], [b, b], rtol=0, atol=3e-7)


def test_two_rounds_without_noise_are_fedavgs() -> None:
    random.seed(1)
    theirs = FedAvg(fraction_evaluate=0.0, min_train_nodes=3).start(
        LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=2
    )
    ours = final(without_noise(vector_arrays(), 2, vector_app))
    for name in ("w", "b"):
        np.testing.assert_allclose(ours[name], theirs.arrays[name].numpy(), rtol=1e-6)


def test_a_real_training_loop_gives_fedavgs_model() -> None:
    """Torch, Adam, a DataLoader; the same seeds, equal counts, no noise. BatchNorm's buffers differ by design."""

    def seeded(message: Message, context: Context) -> Message:
        torch.manual_seed(int(context.node_config["partition-id"]))
        return flower_app.train(message, context)

    app = ClientApp()
    app.train()(seeded)
    theirs = FedAvg(fraction_evaluate=0.0, min_train_nodes=3).start(
        LocalGrid(app, 3, {}), initial(), num_rounds=1, train_config=ConfigRecord({"lr": 0.01})
    )
    ours = final(without_noise(initial(), 1, app))
    for name, value in ours.items():
        if not name.startswith("norm.running") and not name.endswith("tracked"):
            np.testing.assert_allclose(value, theirs.arrays[name].numpy(), rtol=1e-6, atol=2e-7)


# -- many users a node -------------------------------------------------------------------------------------------------


class Patient(torch.nn.Module):
    """A layer that is trained, a frozen one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = torch.nn.Linear(2, 1)
        self.frozen = torch.nn.Linear(1, 1)
        self.frozen.requires_grad_(False)
        self.register_buffer("unit", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.layer(x)) * self.unit


cohort_app = ClientApp()
ROUNDS_SEEN: list[Any] = []


@cohort_app.query("users")
@ff.private.users
def list_patients(context: Context) -> list[str]:
    return [f"patient-{context.node_config['partition-id']}-{index}" for index in range(3)]


@cohort_app.train()
@ff.private.train(Patient, isolation="none")
def train_patient(model: torch.nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
    ROUNDS_SEEN.append((config["server-round"], config["lr"]))
    with torch.no_grad():
        model.layer.weight += config["lr"]  # type: ignore[union-attr, operator]


def test_the_cohort_dialect_serves_a_loop_of_ones_own(tmp_path: Path) -> None:
    ROUNDS_SEEN.clear()
    turns = {"scheme": "min-separation", "separation": 2}
    private = strategy(tmp_path, dialect="cohort", model=Patient, participation=turns)
    arrays = ArrayRecord(Patient().state_dict())
    config = ConfigRecord({"lr": 0.25})
    result = private.start(LocalGrid(cohort_app, 2, {}), arrays, num_rounds=2, train_config=config)
    assert [result.train_metrics_clientapp[number]["reports"] for number in (1, 2)] == [3, 3]
    assert sorted(ROUNDS_SEEN) == [(1, 0.25)] * 3 + [(2, 0.25)] * 3
    state = result.arrays.to_torch_state_dict(keep_input=True)
    Patient().load_state_dict(state, strict=True)
    assert torch.equal(state["frozen.weight"], Patient().frozen.weight)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        assert ledger.population("clinics").users == 6


def test_a_node_of_many_users_says_that_it_needs_the_cohort_dialect(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "dialect = 'cohort'")):
        strategy(tmp_path, model=Patient).start(
            LocalGrid(cohort_app, 3, {}), ArrayRecord(Patient().state_dict()), num_rounds=1
        )


def test_under_add_remove_no_count_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of the nodes fails, and not even that changes what is logged or returned."""
    failing = app_of(lambda m, a: records(**a) if m.metadata.dst_node_id != 2 else {}["missing"])
    poisson = {"scheme": "poisson", "rate": 0.5}
    with caplog.at_level(logging.INFO, logger="flwr"):
        private = strategy(tmp_path, adjacency="add_remove", participation=poisson)
        result = private.start(LocalGrid(failing, 6, {}), vector_arrays(), num_rounds=3)
    lines = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    assert "[ROUND 3/3]" in lines
    assert not any(line.startswith(("configure_train", "aggregate_train")) for line in lines)
    assert all(set(m) == {"epsilon", "delta", "noise-std"} for m in result.train_metrics_clientapp.values())
    assert private.privacy_spent().accounting_method == "sampled-gaussian"
