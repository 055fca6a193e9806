"""The plain dialect with ClientApps that are broken, hostile or unusual: each is one counted reply, never more."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier
from test_private_strategy import app_of, final, records, rehearsal, strategy, without_noise

import fieldfare as ff
from fieldfare import clipping
from fieldfare.errors import BadInput, Refused
from fieldfare.schema import pseudonym
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower.npy import BadReply, read_array
from fieldfare_flower.own_data import Tally
from fieldfare_server.evidence.recompute import recomputed
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger, OpenRound, Outcome
from fieldfare_server.run.presence.failures import Failures
from fieldfare_server.run.presence.identity import KeyRoster, key_pseudonym, kind_of, list_nodes
from fieldfare_server.run.private.strategy import PrivateStrategy
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import assign_roles
from fieldfare_server.run.round.strategy import FieldfareStrategy
from support.flower_app import vector_app, vector_arrays
from support.refusals import Coded, coded

PEM = b"-----BEGIN PUBLIC KEY-----\nMHYw%d\n-----END PUBLIC KEY-----\n"


def run(home: Path, app: ClientApp, nodes: int = 4, rounds: int = 1, **changes: Any) -> tuple[PrivateStrategy, Any]:
    private = strategy(home, **{"cohort": 4, "min_reports": 2, **changes})
    return private, private.start(LocalGrid(app, nodes, {}), vector_arrays(), num_rounds=rounds)


def rejects(home: Path, private: PrivateStrategy) -> list[dict[str, int]]:
    with Ledger.open(StateDirectory.of(home).ledger) as ledger:
        return [row.rejects for row in ledger.rounds(str(private.run_id)).items]


def rehearse(app: ClientApp, arrays: ArrayRecord | None = None, **changes: Any) -> tuple[dict[str, int], int, OwnModel]:
    """One round without noise: (replies that were rejected, reports, the model with its `final` parameters)."""
    values = OwnModel.read(vector_arrays() if arrays is None else arrays)
    model = OwnModel(values, assign_roles(values))
    session = rehearsal(model, **changes)
    seen: list[tuple[dict[str, int], int]] = []
    commit = session.account.commit_round

    def note(round: OpenRound, outcome: Outcome, checkpoint: str) -> None:
        seen.append((dict(outcome.rejects), outcome.reports))
        commit(round, outcome, checkpoint)

    session.account.commit_round = note  # type: ignore[method-assign]
    FieldfareStrategy(session).take_to_end(LocalGrid(app, 3, {}))
    model.final = session.params  # type: ignore[attr-defined]
    return (*seen[0], model)


def one_liar(lie: Callable[[Message, dict[str, np.ndarray]], Any]) -> ClientApp:
    """Node 0 lies, the others answer as `vector_app`'s node 1."""

    def reply(message: Message, arrays: dict[str, np.ndarray]) -> Any:
        if message.metadata.dst_node_id == 2:
            return lie(message, arrays)
        return records(w=arrays["w"] + np.float32(0.1), b=arrays["b"] + np.float32(1), n=arrays["n"] + 1)

    return app_of(reply)


def content_of(arrays: dict[str, Array], **more: Any) -> RecordDict:
    return RecordDict({"arrays": ArrayRecord(arrays), **more})


def patched(arrays: dict[str, np.ndarray], **changes: Any) -> dict[str, Array]:
    made = records(**arrays)
    for name, value in changes.items():
        if value is None:
            made.pop(name)
        else:
            made[name] = value if isinstance(value, Array) else Array(value)
    return made


def crafted(header: bytes, shape: tuple[int, ...] = (2, 2)) -> Array:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    return Array("float32", shape, "numpy.ndarray", data)


def two_records(message: Message, arrays: dict[str, np.ndarray]) -> RecordDict:
    return RecordDict({"a": ArrayRecord(records(**arrays)), "b": ArrayRecord(records(**arrays))})


def truncated(arrays: dict[str, np.ndarray], extra: int) -> Array:
    whole = Array(arrays["w"])
    data = whole.data + bytes(extra) if extra > 0 else whole.data[:extra]
    return Array("float32", (2, 2), "numpy.ndarray", data)


BROKEN: dict[str, tuple[Callable[[Message, dict[str, np.ndarray]], Any], str]] = {
    "no record": (lambda m, a: RecordDict(), "schema"),
    "two records": (two_records, "schema"),
    "an empty record": (lambda m, a: RecordDict({"arrays": ArrayRecord()}), "schema"),
    "a name is missing": (lambda m, a: patched(a, w=None), "schema"),
    "a name too many": (lambda m, a: patched(a, extra=a["w"]), "schema"),
    "integers": (lambda m, a: patched(a, w=np.ones((2, 2), np.int32)), "dtype"),
    "booleans": (lambda m, a: patched(a, w=np.ones((2, 2), np.bool_)), "dtype"),
    "complex numbers": (lambda m, a: patched(a, w=np.ones((2, 2), np.complex64)), "dtype"),
    "text": (lambda m, a: patched(a, w=np.array([["a", "b"], ["c", "d"]])), "dtype"),
    "big-endian": (lambda m, a: patched(a, w=a["w"].astype(">f4")), "dtype"),
    "another serialisation": (lambda m, a: patched(a, w=Array("float32", (2, 2), "pickle", b"cos\nsystem\n")), "dtype"),
    "no bytes": (lambda m, a: patched(a, w=Array("float32", (2, 2), "numpy.ndarray", b"")), "schema"),
    "not an array": (lambda m, a: patched(a, w=crafted(b"{'descr': (`")), "schema"),
    "minus signs": (lambda m, a: patched(a, w=crafted(b"-" * 9000)), "schema"),
    "too few bytes": (lambda m, a: patched(a, w=truncated(a, -1)), "shape"),
    "too many bytes": (lambda m, a: patched(a, w=truncated(a, 8)), "shape"),
    "another shape": (lambda m, a: patched(a, w=a["w"].reshape(4)), "shape"),
    "an exception": (lambda m, a: 1 / 0, "error 2"),
    "an error": (lambda m, a: Message(Error(6, "a mod"), reply_to=m), "error 6"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reply_is_counted_once_and_costs_no_other_user(name: str) -> None:
    lie, reason = BROKEN[name]
    rejected, reports, model = rehearse(one_liar(lie))
    assert rejected == {reason: 1}
    assert reports == 2
    assert final(model)["b"].tolist() == pytest.approx([0.5 + 2 / 3, -0.5 + 2 / 3])


def test_what_was_rejected_is_in_the_ledger(tmp_path: Path) -> None:
    private, result = run(tmp_path, one_liar(BROKEN["not an array"][0]))
    assert rejects(tmp_path, private) == [{"schema": 1}]
    assert result.train_metrics_clientapp[1]["reports"] == 3


NOT_FINITE: dict[str, Callable[[Message, dict[str, np.ndarray]], Any]] = {
    "not a number": lambda m, a: patched(a, w=np.full((2, 2), np.nan, np.float32)),
    "infinite": lambda m, a: patched(a, b=np.array([np.inf, 0], np.float32)),
    "a norm that overflows": lambda m, a: patched(a, w=np.full((2, 2), 1e200)),
}


@pytest.mark.parametrize("kind", ["flat", "automatic", "adaptive-quantile"])
@pytest.mark.parametrize("name", NOT_FINITE)
def test_an_update_that_is_not_finite_is_zero_and_counts_as_participation(name: str, kind: str) -> None:
    """C2: else a user's data decide who is counted, and whether a round is void. Exact: the same model as without."""
    rejected, reports, model = rehearse(one_liar(NOT_FINITE[name]), clip={"kind": kind, "norm": 1e3})
    _, _, unchanged = rehearse(one_liar(lambda m, a: records(**a)), clip={"kind": kind, "norm": 1e3})
    assert (rejected, reports) == ({}, 3)
    assert {k: v.tolist() for k, v in final(model).items()} == {k: v.tolist() for k, v in final(unchanged).items()}


USED: dict[str, Callable[[Message, dict[str, np.ndarray]], Any]] = {
    "another order": lambda m, a: dict(reversed(records(**a).items())),
    "another name of the record": lambda m, a: RecordDict({"parameters": ArrayRecord(records(**a))}),
    "float64": lambda m, a: patched(a, w=a["w"].astype(np.float64)),
    "float16": lambda m, a: patched(a, w=a["w"].astype(np.float16)),
    "columns first": lambda m, a: patched(a, w=np.asfortranarray(a["w"])),
    "no update": lambda m, a: records(**a),
    "a long update": lambda m, a: patched(a, w=a["w"] + np.float32(1e30)),
    "an integer array that is absent": lambda m, a: patched(a, n=None),
    "an integer array that is text": lambda m, a: patched(a, n=np.array("x")),
    "no metrics at all, and records that nobody asked for": lambda m, a: content_of(
        records(**a), other=ConfigRecord({"secret": b"x"}), metrics=MetricRecord({"num-examples": [1, 2]})
    ),
    "a billion examples": lambda m, a: content_of(records(**a), metrics=MetricRecord({"num-examples": 10**9})),
}


@pytest.mark.parametrize("name", USED)
def test_an_unusual_reply_is_used(name: str) -> None:
    rejected, reports, model = rehearse(one_liar(USED[name]))
    assert rejected == {}
    assert reports == 3
    assert final(model)["n"] == 5


def test_no_node_moves_the_mean_by_more_than_the_norm_over_the_cohort() -> None:
    """All three add 1000 to every weight and claim 1e9 examples: the mean moves by C, each of them by C / 3."""
    liar = app_of(
        lambda m, a: content_of(
            records(w=a["w"] + 1000, b=a["b"] + 1000, n=a["n"]), metrics=MetricRecord({"num-examples": 10**9})
        )
    )
    model = without_noise(vector_arrays(), 1, liar, clip=1.0)
    moved = model.final - model.initial  # type: ignore[attr-defined]
    assert float(moved.double().norm()) == pytest.approx(1.0, rel=1e-6)
    assert float(moved.double().norm()) <= 1.0 + 1e-6


# -- who answered ------------------------------------------------------------------------------------------------------


class Forgers(LocalGrid):
    """A grid whose nodes write what they like into the metadata of their replies."""

    def __init__(self, forge: Callable[[Message], Iterable[Message]]) -> None:
        super().__init__(vector_app, 3, {})
        self._forge = forge

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        for reply in super().pull_messages(message_ids):
            yield from self._forge(reply)


def test_a_reply_counts_under_the_message_that_it_answers_whoever_it_says_it_is(tmp_path: Path) -> None:
    """Every node says that it is node 3, and answers twice: three reports, of the three users."""

    def forge(reply: Message) -> Iterator[Message]:
        reply.metadata.__dict__["_src_node_id"] = 3
        yield reply
        yield reply

    private = strategy(tmp_path)
    private.start(Forgers(forge), vector_arrays(), num_rounds=1)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        (row,) = ledger.rounds(str(private.run_id)).items
        assert (row.reports, row.participants) == (3, 3)
        assert ledger.participation_histogram(str(private.run_id)) == {1: 3}
    # The last reply of all comes when nobody waits any more.
    assert row.rejects == {"duplicate or stray reply": 2}


def test_a_reply_to_a_message_of_another_is_stray(tmp_path: Path) -> None:
    def forge(reply: Message) -> Iterator[Message]:
        if reply.metadata.dst_node_id == 1 and reply.metadata.src_node_id == 2:
            reply.metadata.__dict__["_reply_to_message_id"] = "0" * 64
            reply.metadata.__dict__["_group_id"] = "run/0/guess"
        yield reply

    private = strategy(tmp_path, round_timeout=2.0)
    result = private.start(Forgers(forge), vector_arrays(), num_rounds=1)
    assert result.train_metrics_clientapp[1]["reports"] == 2
    assert rejects(tmp_path, private)[0] == {"duplicate or stray reply": 1}


def test_every_message_has_a_token_and_records_of_its_own() -> None:
    """An app that empties what it gets empties nobody else's, and two messages differ though their content does not."""
    seen: list[tuple[str, int, list[str]]] = []

    class Watched(LocalGrid):
        def answer(self, message: Message) -> Message:
            records = sorted(message.content.keys())
            seen.append((message.metadata.group_id, len(message.content["arrays"]), records))
            message.content["arrays"].clear()
            return super().answer(message)

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            self._waiting.update({message.metadata.group_id: message for message in messages})
            return [message.metadata.group_id for message in messages]

    values = OwnModel.read(vector_arrays())
    session = rehearsal(OwnModel(values, assign_roles(values)))
    with pytest.raises(
        BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "KeyError")
    ):  # the app finds no arrays, in every node alike
        FieldfareStrategy(session).take_to_end(Watched(vector_app, 3, {}))
    assert [(count, names) for _, count, names in seen] == [(3, ["arrays", "config"])] * 3
    assert len({group for group, _, _ in seen}) == 3
    assert all(len(group.rpartition("/")[2]) == 32 for group, _, _ in seen)


class Crafted(LocalGrid):
    """A grid where Flower's own decoding of one node's reply raises, and takes the whole look with it."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        waiting = [self._waiting[each] for each in message_ids if each in self._waiting]
        if any(message.metadata.dst_node_id == 2 for message in waiting):
            if len(waiting) == 1:
                self._waiting.pop(waiting[0].metadata.message_id)
            raise IndexError("tuple index out of range")
        yield from super().pull_messages(message_ids)


def test_a_reply_that_flower_cannot_decode_is_one_bad_reply(tmp_path: Path) -> None:
    private = strategy(tmp_path)
    result = private.start(Crafted(vector_app, 3, {}), vector_arrays(), num_rounds=2)
    assert [result.train_metrics_clientapp[number]["reports"] for number in (1, 2)] == [2, 2]
    assert rejects(tmp_path, private) == [{"schema": 1}, {}], "a node that failed rests for a round"


# -- arrays ------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_no_header_raises_anything_but_a_bad_reply(header: bytes) -> None:
    for version in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        width = 2 if version == b"\x01\x00" else 4
        data = b"\x93NUMPY" + version + len(header).to_bytes(width, "little") + header
        with pytest.raises(BadReply):
            read_array(Array("float32", (2,), "numpy.ndarray", data), ("float32",), None)


HEADERS = [
    "{'descr': (`",
    "{'descr': (), 'fortran_order': False, 'shape': (2,), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, -5), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 69 + "1), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 999999999999999999999), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2), }\n",
    "{'descr': '<f9', 'fortran_order': False, 'shape': (2,), }\n",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1" * 4000 + "x,), }\n",
    "-" * 9000,
    "(" * 3000,
]


@pytest.mark.timeout(60)  # a parser that goes back and forth in these would take for ever
@pytest.mark.parametrize("header", HEADERS, ids=lambda text: text[:40])
def test_a_crafted_header_is_a_bad_reply_at_once(header: str) -> None:
    for extra in (b"", bytes(8)):
        array = Array("float32", (2,), "numpy.ndarray", crafted(header.encode()).data + extra)
        with pytest.raises(BadReply):
            read_array(array, ("float32",), None)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (1, 2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool", "uint8"])
def test_what_numpy_writes_is_read_as_numpy_reads_it(shape: tuple[int, ...], dtype: str) -> None:
    value = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    for stored in (value, np.asfortranarray(value) if shape else value):
        assert np.array_equal(read_array(Array(stored), (dtype,), shape), value)
        stream = io.BytesIO()
        np.lib.format.write_array(stream, stored, version=(2, 0))
        array = Array(dtype, shape, "numpy.ndarray", stream.getvalue())
        assert np.array_equal(read_array(array, (dtype,), shape), value)


# -- an app that is wrong everywhere (D1) ------------------------------------------------------------------------------


def fails(what: Callable[[], Any]) -> ClientApp:
    return app_of(lambda message, arrays: what())


def test_an_app_that_fails_everywhere_ends_the_run_at_once_and_costs_nothing(tmp_path: Path) -> None:
    def raises() -> None:
        raise FileNotFoundError("/data/of/alice.csv")

    began = time.monotonic()
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "FileNotFoundError")) as caught:
        run(tmp_path, fails(raises), round_timeout=60.0)
    assert time.monotonic() - began < 50, "it waited for the round's timeout"
    assert "alice" not in str(caught.value)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        (view,) = ledger.runs().items
        population = ledger.population("clinics")
        assert (view.state, view.next_round) == ("failed", 0)
        assert "FileNotFoundError" in view.message
    assert population.reserved_epsilon == population.spent_epsilon == 0


def test_what_is_wrong_with_the_app_is_named(tmp_path: Path) -> None:
    def bf16() -> Any:
        return ArrayRecord({"w": torch.zeros(2, 2, dtype=torch.bfloat16)})  # type: ignore[dict-item]

    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp")):
        run(tmp_path / "bf16", fails(bf16))
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "ArrayRecord")):
        run(tmp_path / "names", fails(lambda: records(other=np.zeros(3, np.float32))))

    def client_fn(context: Context) -> Any:
        from flwr.clientapp import ClientApp as _  # noqa: F401

        raise KeyError("fitins.parameters")

    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp")):
        run(tmp_path / "old", fails(lambda: client_fn(None)))  # type: ignore[arg-type]
    named = ClientApp()
    named.train("other")(lambda message, context: message)
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "@app.train")):
        run(tmp_path / "named", named)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: {}["none"], coded("nodes-fail", "the nodes' ClientApp", "@ff.private.users", "@ff.private.train")),
        (lambda: "weights", coded("nodes-fail", "the nodes' ClientApp", "@ff.private.train")),
        (DecisionTreeClassifier, coded("nodes-fail", "the nodes' ClientApp")),
    ],
)
def test_what_is_wrong_with_a_loop_is_named(build: Any, says: Coded, tmp_path: Path) -> None:
    app = ClientApp()
    app.query("users")(ff.private.users(lambda context: ["anna"]))
    app.train()(ff.private.train(lambda: build())(lambda model, user, context, config: model))
    with pytest.raises(BadInput, check=says):
        run(tmp_path, app, dialect="cohort")


def test_a_stranger_in_the_cohort_dialect_is_told_the_other_one(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "dialect = 'plain'")):
        run(tmp_path, vector_app, dialect="cohort", round_timeout=60.0)
    assert time.monotonic() - began < 50, "it waited for the round's timeout"


def test_the_first_cause_is_kept_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node answers, three fail for ever: the run ends and says what went wrong first."""
    monkeypatch.setattr("fieldfare_server.run.presence.patience.MOST_VOIDS", 3)
    app = app_of(lambda m, a: records(**a) if m.metadata.dst_node_id == 2 else {}["missing"])
    with pytest.raises(Refused, check=coded("nothing-committed", "run", "KeyError")):
        run(tmp_path, app)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        (view,) = ledger.runs().items
        rows = ledger.rounds(view.id).items
    assert view.state == "failed"
    assert all("KeyError" in row.reason for row in rows)


def test_silence_ends_by_the_timeout_and_says_how_many(tmp_path: Path) -> None:
    class Silent(LocalGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
            return iter(())

    private = strategy(tmp_path, round_timeout=0.3)
    with pytest.raises(Refused, check=coded("nothing-committed", "run", "0.3")):
        private.start(Silent(vector_app, 3, {}), vector_arrays(), num_rounds=1)


# -- identities --------------------------------------------------------------------------------------------------------


def fake_grid(*keys: bytes) -> Any:
    nodes = [SimpleNamespace(node_id=1000 - index, public_key=key) for index, key in enumerate(keys)]
    return SimpleNamespace(get_nodes=lambda: nodes)


def names_of(grid: Any, simulated: bool = False) -> dict[int, int]:
    """Node id -> pseudonym."""
    values = OwnModel.read(vector_arrays())
    schema = OwnModel(values, assign_roles(values)).schema
    roster = KeyRoster(schema, "run", lambda ids: np.arange(len(ids)), simulated=simulated)
    roster.look(grid)
    roster.register()
    return {node: int(names[0]) for node, (_, names) in roster.by_node(roster.available()).items()}


def test_a_user_is_a_hash_of_the_nodes_key_and_not_its_id() -> None:
    first, second = names_of(fake_grid(PEM % 1, PEM % 2)), names_of(fake_grid(PEM % 2, PEM % 1))
    assert first[1000] == second[999] == key_pseudonym(PEM % 1)
    assert first[999] == second[1000] != first[1000]
    assert key_pseudonym(b"partition-0") != pseudonym("partition-0")


def test_a_superlink_that_fails_for_a_moment_leaves_the_nodes_that_were_there() -> None:
    values = OwnModel.read(vector_arrays())
    roster = KeyRoster(OwnModel(values, assign_roles(values)).schema, "run", lambda ids: np.arange(len(ids)))
    grid, request = fake_grid(PEM % 1, PEM % 2), httpx.Request("POST", "https://superlink/v1/runtime/get-nodes")

    def fail() -> None:
        httpx.Response(500, request=request).raise_for_status()

    for answer in (grid.get_nodes, fail):
        roster.look(SimpleNamespace(get_nodes=answer))  # type: ignore[arg-type]
        roster.register()
        assert roster.nodes_online == roster.available().size == 2


def test_what_sort_of_nodes_these_are() -> None:
    def kind(grid: Any) -> str:
        return kind_of(grid, list_nodes(grid))

    assert kind(LocalGrid(vector_app, 2, {})) == "local"
    assert kind(fake_grid(bytes(32), bytes(range(32)))) == "simulated"
    assert kind(fake_grid(PEM % 1)) == "real"
    assert kind(fake_grid(PEM % 1, bytes(32))) == "real"
    assert kind(fake_grid()) == "real"
    simulated = names_of(fake_grid(bytes(32), bytes(range(32))), simulated=True)
    assert set(simulated.values()) == {pseudonym("simulated-0"), pseudonym("simulated-1")}
    assert simulated[999] == pseudonym("simulated-0")
    local = names_of(LocalGrid(vector_app, 2, {}))
    assert local == {2: pseudonym("partition-0"), 3: pseudonym("partition-1")}


class Keyed(LocalGrid):
    """A grid whose nodes show the keys of another kind of federation."""

    simulated = False

    def __init__(self, *keys: bytes, app: ClientApp = vector_app) -> None:
        super().__init__(app, len(keys), {})
        self.keys = keys

    def get_nodes(self) -> Any:
        ids = self.get_node_ids()
        return [SimpleNamespace(node_id=node, public_key=key) for node, key in zip(ids, self.keys, strict=True)]


def test_people_get_a_budget_only_in_a_home_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIELDFARE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "account"))
    grid, evaluated = Keyed(PEM % 1, PEM % 2, PEM % 3), list[int]()
    keywords = {"epsilon": 8.0, "delta": 1e-5, "cohort": 3, "mechanism": "independent", "population": "clinics"}
    for more in ({}, {"trust_node_ids": True}):
        with pytest.raises(BadInput, check=coded("not-allowed", "population 'clinics'", "FIELDFARE_HOME", "home=")):
            PrivateStrategy(**keywords, budget=40.0, **more).start(
                grid, vector_arrays(), num_rounds=1, evaluate_fn=lambda number, arrays: evaluated.append(number)
            )
    assert not evaluated  # it may take minutes
    assert not (tmp_path / "account").exists()
    # A population that somebody made there is used.
    home = StateDirectory.of()
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("clinics", 40.0, 1e-5, actor="officer")
    PrivateStrategy(**keywords, trust_node_ids=True, round_timeout=5.0).start(grid, vector_arrays(), num_rounds=1)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("'@ff.private.users: 3 of 20 ids are not strings.'", "str(id)"),
        ("'@ff.private.users: 2 of 20 ids occur before in the list.'", "each id once"),
        ("'cohort: 4 of 10 asked users are not hosted here.'", "the same list at every call"),
    ],
)
def test_what_ff_private_refuses_on_a_node_has_its_own_advice(text: str, advice: str) -> None:
    failures = Failures("cohort")
    asked = Message(RecordDict(), 2, "train")
    failures.note_error(Message(Error(2, f"<class 'fieldfare.errors.BadInput'>:<{text}>"), reply_to=asked), 2)
    assert advice in str(failures.all_wrong(1))
    rejected = Failures("cohort")
    rejected.note_rejected("schema", 2)
    assert "model= of the strategy" in str(rejected.all_wrong(1))


def test_a_cause_says_of_no_node_that_it_failed_which_answered_well() -> None:
    failures = Failures("plain")
    for _ in range(2):
        failures.note_rejected("schema", 2)
    assert failures.first_cause.startswith("no node of the 1 ")
    failures.note_answer()
    assert failures.first_cause == "nodes did not answer as they should: 2 x a reply that cannot be used (schema)"


def test_unauthenticated_nodes_are_refused_unless_they_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Keyed(PEM % 1, PEM % 2, PEM % 3)
    with pytest.raises(
        BadInput, check=coded("not-allowed", "run.trust_node_ids", "--enable-supernode-auth", "FIELDFARE_NODE_AUTH")
    ):
        strategy(tmp_path / "a").start(grid, vector_arrays(), num_rounds=1)
    trusted = strategy(tmp_path / "b", trust_node_ids=True)
    trusted.start(grid, vector_arrays(), num_rounds=1)
    with Ledger.open(StateDirectory.of(tmp_path / "b").ledger) as ledger:
        assert ledger.run(str(trusted.run_id)).trust_node_ids
        assert ledger.run(str(trusted.run_id)).accounting == "individual"
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", "required")
    strategy(tmp_path / "c").start(grid, vector_arrays(), num_rounds=1)
    with pytest.raises(BadInput, check=coded("not-given", "a public key of each node", "get_nodes()")):
        strategy(tmp_path / "d").start(Keyed(PEM % 1, PEM % 2, b""), vector_arrays(), num_rounds=1)


def test_on_real_nodes_updates_that_are_not_finite_end_nothing_and_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tallies: list[Tally] = []
    monkeypatch.setattr("fieldfare_server.run.presence.presence.Tally", lambda: tallies.append(Tally()) or tallies[-1])
    private = strategy(tmp_path, trust_node_ids=True)
    grid = Keyed(PEM % 1, PEM % 2, PEM % 3, app=app_of(NOT_FINITE["not a number"]))
    private.start(grid, vector_arrays(), num_rounds=3)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        view = ledger.run(str(private.run_id))
        assert (view.state, view.next_round) == ("done", 3)
        assert [(row.reports, row.rejects) for row in ledger.rounds(view.id).items] == [(3, {})] * 3
    assert [tally.take() for tally in tallies] == [None]


def test_nodes_that_look_simulated_never_count_as_real_users(tmp_path: Path) -> None:
    grid = Keyed(*(bytes([index]) * 32 for index in range(3)))
    with Ledger.open(_prepared(tmp_path).ledger, create=True) as ledger:
        ledger.create_population("people", 40.0, 1e-5, actor="test")
    with pytest.raises(BadInput, check=coded("not-allowed", "population")):
        strategy(tmp_path, population="people").start(grid, vector_arrays(), num_rounds=1)
    private = strategy(tmp_path, run="one")
    private.start(grid, vector_arrays(), num_rounds=1)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        view = ledger.population("clinics")
        assert view.simulated
        # A name such as simulated-0 is another node's in the next run, so no odometer may count by it.
        assert (view.accounting, ledger.run("one").accounting) == ("individual", "worst-case")
        planned = ledger.run("one").planned.mu_squared
        assert view.spent.mu_squared == pytest.approx(planned, rel=1e-9)
        charges, left = recomputed(ledger, StateDirectory.of(tmp_path).root, "clinics")
        assert (charges, list(left)) == ({}, ["one"])
    strategy(tmp_path, run="again").start(grid, vector_arrays(), num_rounds=1)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        assert ledger.population("clinics").spent.mu_squared == pytest.approx(2 * planned, rel=1e-9)

    def broken(number: int, arrays: ArrayRecord) -> None:
        if number == 1:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError):
        strategy(tmp_path, run="two").start(grid, vector_arrays(), num_rounds=2, evaluate_fn=broken)
    with pytest.raises(BadInput, check=coded("not-allowed", "resume of run")):
        strategy(tmp_path, run="two").start(grid, vector_arrays(), num_rounds=2)


def _prepared(home: Path) -> StateDirectory:
    state = StateDirectory.of(home)
    state.prepare()
    return state


# -- roles -------------------------------------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """One embedding under two names, a frozen layer, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.body = torch.nn.Linear(3, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.body.weight.requires_grad = False
        self.register_buffer("scale", torch.ones(3))


def roles_of(module: torch.nn.Module, **changes: Any) -> Any:
    return assign_roles(OwnModel.read(ArrayRecord(module.state_dict())), **changes)


def test_roles_come_from_the_module_or_from_names_and_values() -> None:
    torch.manual_seed(0)
    exact = roles_of(Tied(), model=Tied)
    assert exact.of == {
        "embed.weight": "trained", "scale": "buffer", "body.weight": "frozen", "body.bias": "trained",
        "head.weight": "tied",
    }  # fmt: skip
    assert exact.first_names == {"head.weight": "embed.weight"}
    guessed = roles_of(Tied(), tied=[("embed.weight", "head.weight")])
    assert guessed.first_names == {"head.weight": "embed.weight"}
    assert guessed.of["body.weight"] == guessed.of["scale"] == "trained"
    # Zero biases and unit norms are equal, and are not one tensor.
    two = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.LayerNorm(4))
    assert set(roles_of(two).of.values()) == {"trained"}
    assert roles_of(two, tied=[("0.weight", "1.weight")]).first_names == {"1.weight": "0.weight"}
    assert roles_of(Tied(), tied=[]).of["head.weight"] == "trained"
    # Neither is guessed, unless nothing of it is trained.
    with pytest.raises(BadInput, check=coded("copied-arrays", "tied=[] if")):
        roles_of(Tied())
    with pytest.raises(BadInput, check=coded("copied-arrays")):
        roles_of(Tied(), trainable=["head.*"])
    assert roles_of(Tied(), trainable=["body.*"]).named("trained") == ("body.weight", "body.bias")
    only = roles_of(Tied(), model=Tied(), trainable=["body.*"])
    assert only.named("trained") == ("body.bias",)
    assert only.of["embed.weight"] == "frozen"
    norm = roles_of(torch.nn.BatchNorm1d(3))
    assert norm.changing == ("running_mean", "running_var")
    private = roles_of(torch.nn.BatchNorm1d(3), buffers="private")
    assert private.named("trained") == ("weight", "bias", "running_mean", "running_var")
    assert private.of["num_batches_tracked"] == "buffer"
    with pytest.raises(BadInput, check=coded("model-differs")):
        roles_of(Tied(), model=lambda: torch.nn.Linear(2, 2))
    with pytest.raises(BadInput, check=coded("trainable-unknown")):
        roles_of(Tied(), trainable=["nothing.*"], tied=[])
    with pytest.raises(BadInput, check=coded("tied-unknown")):
        roles_of(Tied(), tied=[("embed.weight", "body.weight")])
    with pytest.raises(BadInput, check=coded("arrays-unfit")):
        assign_roles({"n": np.ones(3, np.int64)})


def test_statistics_in_a_list_without_names_are_not_trained() -> None:
    """As `[v.numpy() for v in net.state_dict().values()]` sends them: their noised variances became negative."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    listed = {str(place): value.numpy() for place, value in enumerate(net.state_dict().values())}
    with pytest.raises(BadInput, check=coded("arrays-unfit", "model.state_dict()")):
        assign_roles(listed)
    assert assign_roles(listed, trainable=["0", "1"]).named("trained") == ("0", "1")
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    listed = {str(place): value.numpy() for place, value in enumerate(plain.state_dict().values())}
    assert set(assign_roles({**listed, "6": np.array(3)}).named("trained")) == set(listed)


def test_both_names_of_a_tied_tensor_get_one_release(tmp_path: Path) -> None:
    torch.manual_seed(0)
    arrays = ArrayRecord(Tied().state_dict())
    app = app_of(lambda m, a: records(**{name: value + np.float32(0.01) for name, value in a.items()}))
    private = strategy(tmp_path, model=Tied)
    result = private.start(LocalGrid(app, 3, {}), arrays, num_rounds=3)
    state = result.arrays.to_torch_state_dict()
    assert torch.equal(state["embed.weight"], state["head.weight"])
    assert not torch.equal(state["embed.weight"], arrays.to_torch_state_dict()["embed.weight"])
    assert torch.equal(state["body.weight"], arrays.to_torch_state_dict()["body.weight"])
    assert torch.equal(state["scale"], torch.ones(3))


def test_an_unchanged_reply_in_half_precision_is_no_update() -> None:
    generator = np.random.default_rng(1)
    arrays = ArrayRecord({"w": Array(generator.normal(0, 0.1, 1000).astype(np.float16))})
    shift = app_of(lambda m, a: records(w=a["w"] + np.float16(0.5)))
    same = app_of(lambda m, a: records(**a))
    model = without_noise(arrays, 2, same)
    assert torch.equal(model.final, model.initial)  # type: ignore[attr-defined]
    moved = without_noise(arrays, 1, shift)
    assert final(moved)["w"].dtype == np.float16


def test_two_bytes_a_parameter_each_way_are_half_the_bytes_at_the_same_charge_and_noise(tmp_path: Path) -> None:
    told, weights = [], np.ones((100, 100), np.float32)
    for dtype, reply in ((np.float32, "model"), (np.float16, "deltas")):
        weighed: list[int] = []

        def answer(
            message: Message, arrays: dict[str, np.ndarray], reply: str = reply, weighed: list[int] = weighed
        ) -> Any:
            step = np.full_like(arrays["w"], 1e-3)
            made = records(w=step if reply == "deltas" else arrays["w"] + step)
            weighed += [len(array.data) for array in (message.content["arrays"]["w"], made["w"])]
            return made

        private = strategy(tmp_path / reply, reply=reply)
        arrays = ArrayRecord({"w": Array(weights.astype(dtype))})
        result = private.start(LocalGrid(app_of(answer), 3, {}), arrays, num_rounds=2)
        assert [row["reports"] for row in result.train_metrics_clientapp.values()] == [3, 3]
        told.append(
            (sum(weighed), private.privacy_spent(), [dict(row) for row in result.train_metrics_clientapp.values()])
        )
    (whole, *charged), (halved, *charged_halved) = told
    assert 3 * 2 * 2 * 20_000 < halved < 0.51 * whole
    assert charged == charged_halved


def test_steps_below_the_last_digit_of_half_precision_add_up() -> None:
    """Next to 1 float16 has steps of .001; the server keeps float32, and nodes see what it rounds to."""
    arrays = ArrayRecord({"w": Array(np.ones(4, np.float16))})
    values = OwnModel.read(arrays)
    model = OwnModel(values, assign_roles(values))
    session = rehearsal(model, 20, deltas=True)
    moves = app_of(lambda m, a: records(w=np.full(4, 1e-4, np.float16)))
    FieldfareStrategy(session).take_to_end(LocalGrid(moves, 3, {}))
    np.testing.assert_allclose(session.params, 1.002, atol=1e-5)
    assert (model.complete(session.params)["w"] == np.float16(1.002)).all()


def test_a_release_that_overflows_its_type_ends_the_run_as_diverged(tmp_path: Path) -> None:
    arrays = ArrayRecord({"w": Array(np.full(4, 60000, np.float16))})
    app = app_of(lambda m, a: records(w=np.full(4, 1e30)))
    private = strategy(tmp_path, clip=1e6)
    with pytest.raises(BadInput, check=coded("diverged", "server_optimizer and client learning rates of run")):
        private.start(LocalGrid(app, 3, {}), arrays, num_rounds=2)


def test_private_buffers_are_released_with_variances_above_zero() -> None:
    arrays = ArrayRecord(torch.nn.BatchNorm1d(2).state_dict())

    def reply(message: Message, a: dict[str, np.ndarray]) -> dict[str, Array]:
        moved = {name: value + np.float32(3) if value.dtype == np.float32 else value + 7 for name, value in a.items()}
        return records(**{**moved, "running_var": np.full(2, -5, np.float32)})

    result = final(without_noise(arrays, 1, app_of(reply), buffers="private"))
    np.testing.assert_allclose(result["running_mean"], 3.0)
    assert (result["running_var"] == np.float32(1e-5)).all()
    assert result["num_batches_tracked"] == 0
    kept = final(without_noise(arrays, 1, app_of(reply)))
    assert (kept["running_mean"] == 0).all()
    assert (kept["weight"] == 4).all()


@pytest.mark.parametrize("kind", ["flat", "per-layer", "normalised", "automatic", "adaptive-quantile"])
def test_every_kind_of_clipping_is_the_servers_own(kind: str) -> None:
    """All three replies are long: the mean of three equal clipped updates is as long as the kind's bound."""
    spec = clipping.parse({"kind": kind, "norm": 0.5})
    rejected, reports, model = rehearse(vector_like(), clip={"kind": kind, "norm": 0.5})
    moved = float((model.final - model.initial).double().norm())  # type: ignore[attr-defined]
    assert (rejected, reports) == ({}, 3)
    assert 0.9 * spec.bound < moved <= spec.bound * (1 + 1e-6)


def vector_like() -> ClientApp:
    return app_of(lambda m, a: records(**{name: value + value.dtype.type(1) for name, value in a.items()}))


def test_flowers_own_clipping_mod_works_with_the_norm_that_is_sent(tmp_path: Path) -> None:
    """A mod clips before anything leaves the node; the server's clipping then changes nothing."""
    from flwr.clientapp.mod import fixedclipping_mod

    app = ClientApp(mods=[fixedclipping_mod])
    honest = vector_like()
    app.train()(lambda message, context: honest(message, context))
    private = strategy(tmp_path, clip_on_nodes=True)
    floats = ArrayRecord({name: array for name, array in vector_arrays().items() if name != "n"})
    result = private.start(LocalGrid(app, 3, {}), floats, num_rounds=1)
    assert result.train_metrics_clientapp[1]["reports"] == 3


def test_deltas_are_an_option_and_never_guessed() -> None:
    moves = app_of(lambda m, a: records(w=np.full((2, 2), 0.25, np.float32), b=np.zeros(2, np.float32)))
    as_model, as_deltas = rehearse(moves)[2], rehearse(moves, deltas=True)[2]
    np.testing.assert_allclose(final(as_model)["w"], 0.25, rtol=1e-6)
    assert final(as_deltas)["w"].tolist() == [[1.25, 2.25], [3.25, 4.25]]
