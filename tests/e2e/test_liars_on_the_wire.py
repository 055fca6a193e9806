"""One node of three lies through real SuperLink, SuperNode and ClientApp processes, with TLS and node keys.

The lies are those of `support.liars` that one message can tell, and those of `wire/`, which Flower's own classes would
not write. What takes several messages, or an absence, is in tests/server/run/test_liars.py.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fieldfare_flower.messages import QUERY_USERS
from fieldfare_server.deployment.submit import require_ended, submit
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RoundView
from fieldfare_server.run.presence.standing import QUARANTINED
from support.deployed import round_time
from support.federation import TinyTask
from support.liars import LIARS

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.timeout(900)]

WIRE = Path(__file__).parent / "wire"
TASK = "support.federation:TinyTask"
PLAN = """
[privacy]
population = "{name}"
noise_multiplier = 20.0
delta = 1e-5
[run]
task = "support.federation:TinyTask"
rounds = {rounds}
cohort = {cohort}
{enough}
round_timeout = {timeout}
[participation]
{participation}
[mechanism]
kind = "independent"
[client]
epochs = 1
batch_size = 3
learning_rate = 0.1
"""
LATE = 10.5
TIMEOUT = 10.0
"""Seconds of a round; a silent node answers after it."""


@dataclass
class Deployment:
    """Three nodes; node 0 tells what `run` says."""

    home: StateDirectory
    work: Path
    address: str
    ca: Path

    def run(self, name: str, train: list[str], query: str = "", **plan: Any) -> list[RoundView]:
        """A run to its end on a population of its own; its attempts, after the whole ledger was verified."""
        for left in ("told", "first"):
            (self.work / "lies" / left).unlink(missing_ok=True)
        (self.work / "lies" / "script.json").write_text(json.dumps({"train": train, "query": query, "late": LATE}))
        with Ledger.open(self.home.ledger, head_file=self.home.head_file) as ledger:
            # Simulated ones may have the same users.
            ledger.create_population(name, 1000.0, 1e-5, simulated=True, actor="test")
        text = PLAN.format(name=name, timeout=TIMEOUT, **plan)
        options = {"plan": text, "task": TASK, "run_id": name, "root_certificates": self.ca, "timeout": 800}
        output = submit(self.work / "run", self.address, **options)
        require_ended(self.home, name, output)
        with Ledger.open(self.home.ledger) as ledger:
            report = verify(ledger, self.home.root, recompute=recharge, held=[ledger.head()])
            assert report.ok, str(report.fault)
            assert ledger.run(name).state == "done"
            return sorted(ledger.rounds(name, limit=500).items, key=lambda view: (view.index, view.attempt))

    def told(self) -> list[str]:
        """The lies about training that were told, in order."""
        path = self.work / "lies" / "told"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    work = tmp_path_factory.mktemp("wire")
    (work / "lies").mkdir()
    (work / "lies" / "script.json").write_text(json.dumps({"train": [], "query": "", "late": LATE}))
    home = StateDirectory(work / "home", f"sqlite:///{work / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file):
        pass
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(WIRE), str(WIRE.parents[1]), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("WIRE_LIES", str(work / "lies"))
        with round_time().federation(work, home, 3, TASK, ours=True) as (_, address, ca):
            yield Deployment(home, work, address, ca)


HONEST = ""
SILENT = {"no update", "an update hours late"}
SEVERAL = {"every other update", "well at first"}
"""They take more than one message to tell."""
REASONS: dict[str, str | None] = {
    "an exception in every round": "error 2",
    "an error that passes, for ever": "error 5",
    "an error without a known code": "error 99",
    "an error that paints the terminal": "error 2",
    "no update": None,
    "an update hours late": None,
    "not a number": "non-finite",
    "infinite": "non-finite",
    "another shape": "shape",
    "another type": "dtype",
    "objects": "dtype",
    "a header of Python": "schema",
    "a header without end": "schema",
    "fewer bytes than announced": "shape",
    "more bytes than announced": "shape",
    "no bytes": "schema",
    "no array": "schema",
    "no report": "schema",
    "no header": "schema",
    "nothing at all": "schema",
    "another parameter": "schema",
    "another record": "schema",
    "another array record": "size",
    "another round": "round",
    "another attempt": "round",
    "another run": "round",
    "another version": "version",
    "ill-typed header": "schema",
    "a million users": "users",
    "a negative number of users": "users",
    "users as a fraction": "users",
    "counts that were not asked for": "schema",
    "a reply of an old round": "round",
    "a huge update": "over-norm, clipped again",
    "the opposite update": None,
    "no users": "over-norm, clipped again",
    # of wire/
    "a chunk twenty thousand times": "size",
    "a chunk that is not there": "schema",
    "an array of nonsense": "schema",
    "a record of nonsense": "schema",
    "metrics of nonsense": "schema",
    "a message of nonsense": "schema",
    "a reply to nothing": "schema",
    "its process dies": None,
}
"""What the ledger counts for each lie about training; None: nothing. A node may be silent, and an update anything."""
USABLE = {"a huge update", "the opposite update"}


def test_each_lie_that_one_message_can_tell_is_told_and_counted_in_one_run(deployment: Deployment) -> None:
    """Users are sampled, so every node is asked in every round, whatever it has done before."""
    told_by_messages = {
        liar.name
        for liar in LIARS
        if liar.query is None and not liar.away(15.0) and (liar.train is not None or liar.takes("train") > 1e3)
    }
    assert told_by_messages - SEVERAL <= set(REASONS)
    # After a silent one the node needs the time of an honest answer to catch up.
    lies = [word for lie in REASONS for word in ([lie, HONEST] if lie in SILENT else [lie])]
    views = deployment.run(
        "all-lies", lies, rounds=len(lies), cohort=21, enough="", participation='scheme = "poisson"\nrate = 0.9'
    )
    assert deployment.told() == lies
    assert [view.state for view in views] == ["committed"] * len(lies)
    counted = {lie: dict(view.rejects) for lie, view in zip(lies, views, strict=True) if lie}
    assert counted == {lie: {} if reason is None else {reason: 1} for lie, reason in REASONS.items()}
    # No lie costs a user of the other two nodes their place.
    hosted = TinyTask().users().partition(0, 3).pseudonyms.size
    missing = {lie: (view.cohort_size or 0) - (view.reports or 0) for lie, view in zip(lies, views, strict=True)}
    assert all(missing[lie] == 0 for lie in USABLE), missing
    assert all(0 < missing[lie] <= hosted for lie in REASONS if lie not in USABLE), missing
    with Ledger.open(deployment.home.ledger) as ledger:
        run = ledger.run("all-lies")
    assert 0.0 < run.spent_epsilon <= run.planned_epsilon


def test_a_node_that_lies_in_another_way_each_time_is_put_in_quarantine(deployment: Deployment) -> None:
    """Five failures in a row, with longer and longer rests between them; the others fill the rounds."""
    lies = [
        "an exception in every round",
        "another shape",
        "a chunk that is not there",
        "not a number",
        "another round",
    ]
    views = deployment.run(
        "quarantine",
        lies,
        rounds=80,  # its rests take seconds, and rounds of the others little more than one
        cohort=8,
        enough="min_reports = 6",
        participation='scheme = "min-separation"\nseparation = 2\nmax_participations = 40',
    )
    assert deployment.told() == lies
    states = Counter(view.state for view in views)
    assert states["committed"] == 80
    assert states["void"] <= len(lies)
    counted = sum((Counter(view.rejects) for view in views), Counter())
    assert counted == {**Counter(REASONS[lie] for lie in lies), QUARANTINED: 1}


@pytest.mark.parametrize(
    "lie",
    [liar.name for liar in LIARS if liar.query is not None or liar.takes(QUERY_USERS) > 1e3 or "hosts" in liar.name],
)
def test_a_lie_about_whom_a_node_hosts_stops_no_run(lie: str, deployment: Deployment) -> None:
    train = ["an exception in every round"] * 5 if "errs" in lie else ["no update"] * 5 if "silent" in lie else []
    views = deployment.run(
        lie.replace(" ", "-").replace(",", ""),
        train,
        query=lie,
        rounds=3,
        cohort=8,
        enough="min_reports = 6",
        participation='scheme = "min-separation"\nseparation = 2\nmax_participations = 2',
    )
    states = Counter(view.state for view in views)
    assert states["committed"] == 3
    assert states["void"] <= 5
