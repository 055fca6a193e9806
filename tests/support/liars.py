"""What a hostile or broken node may do: each behaviour with a name. `TimedGrid` plays them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fieldfare.schema import pseudonym
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import COHORT, HEADER, QUERY_USERS, REPORT, UPDATE, USERS, WITNESS
from support.clock import FakeClock
from support.federation import USERS as USER_COUNT
from support.federation import Lie, TinyTask
from support.timed_grid import TimedGrid


@dataclass(frozen=True)
class Liar:
    """One behaviour.

    Args:
        train, query: makes its replies to instructions, and to the question for its users; None: honest ones.
        takes: message type -> seconds until it answers.
        away: seconds since the start -> whether it is offline.
    """

    name: str
    train: Callable[[], Lie] | None = None
    query: Callable[[], Lie] | None = None
    takes: Callable[[str], float] = lambda kind: 0.3
    away: Callable[[float], bool] = lambda at: False


def error(code: int, reason: str = "<class 'ValueError'>:<'no'>") -> Lie:
    return lambda message, reply: Message(Error(code, reason), reply_to=message)


def records(change: Callable[[RecordDict], Any]) -> Lie:
    """Changes the records of an honest reply in place."""

    def lie(message: Message, reply: Message) -> Message:
        if reply.has_error():
            return reply
        change(reply.content)
        return reply

    return lie


def values(change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Lie:
    """Changes every array of an honest update."""

    def rewrite(content: RecordDict) -> None:
        arrays = content.array_records[UPDATE]
        content[UPDATE] = ArrayRecord({name: Array(change(array.numpy().copy())) for name, array in arrays.items()})

    return records(rewrite)


def bytes_of(change: Callable[[bytes], bytes]) -> Lie:
    """Changes the bytes of every array, and leaves what is said of them."""

    def rewrite(content: RecordDict) -> None:
        arrays = content.array_records[UPDATE]
        content[UPDATE] = ArrayRecord(
            {name: Array(a.dtype, a.shape, a.stype, change(a.data)) for name, a in arrays.items()}
        )

    return records(rewrite)


def header(**entries: Any) -> Lie:
    return records(lambda content: content.config_records[HEADER].update(entries))


def report(**entries: Any) -> Lie:
    return records(lambda content: content.metric_records[REPORT].update(entries))


def drop(record: str) -> Lie:
    return records(lambda content: content.pop(record, None))


def crafted(text: bytes) -> Callable[[bytes], bytes]:
    return lambda data: b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def claims(names: Iterable[int]) -> Lie:
    made = np.fromiter(names, np.uint64)
    return records(lambda content: content.__setitem__(COHORT, ArrayRecord({USERS: Array(made)})))


def sometimes(lie: Lie, when: Callable[[int], bool]) -> Callable[[], Lie]:
    """`lie` at those of its instructions, counted from 0, for which `when` says so; else honest."""

    def make() -> Lie:
        count = -1

        def act(message: Message, reply: Message) -> Message:
            nonlocal count
            count += 1
            return lie(message, reply) if when(count) else reply

        return act

    return make


def replay() -> Lie:
    """Its first update again and again."""
    kept: list[RecordDict] = []

    def act(message: Message, reply: Message) -> Message:
        kept.append(reply.content)
        return Message(kept[0], reply_to=message)

    return act


def always(lie: Lie) -> Callable[[], Lie]:
    return lambda: lie


def never(kind: str, otherwise: float = 0.3) -> Callable[[str], float]:
    return lambda asked: math.inf if asked == kind else otherwise


EVERYONE = [pseudonym(f"user-{index:02d}") for index in range(USER_COUNT)]
INVENTED = [pseudonym(f"invented-{index}") for index in range(1000)]
LATE = 1e4

LIARS = [
    # -- updates that cannot be used
    Liar("an exception in every round", always(error(2))),
    Liar("an error that passes, for ever", always(error(5))),
    Liar("an error without a known code", always(error(99))),
    Liar("an error that paints the terminal", always(error(2, "\x1b[31m[bold]" + "x" * 5000))),
    Liar("no update", takes=never("train")),
    Liar("an update hours late", takes=lambda kind: LATE if kind == "train" else 0.3),
    Liar("not a number", always(values(lambda a: a * np.float32(math.nan)))),
    Liar("infinite", always(values(lambda a: a + np.float32(math.inf)))),
    Liar("another shape", always(values(lambda a: np.zeros((7, *a.shape), np.float32)))),
    Liar("another type", always(values(lambda a: a.astype(np.float64)))),
    Liar("objects", always(bytes_of(lambda data: data.replace(b"'<f4'", b"'|O8'")))),
    Liar("a header of Python", always(bytes_of(crafted(b"{'descr': (")))),
    Liar("a header without end", always(bytes_of(crafted(b"{" * 4000)))),
    Liar("fewer bytes than announced", always(bytes_of(lambda data: data[:-1]))),
    Liar("more bytes than announced", always(bytes_of(lambda data: data + bytes(64)))),
    Liar("no bytes", always(bytes_of(lambda data: b""))),
    Liar("no array", always(drop(UPDATE))),
    Liar("no report", always(drop(REPORT))),
    Liar("no header", always(drop(HEADER))),
    Liar("nothing at all", always(lambda message, reply: Message(RecordDict(), reply_to=message))),
    Liar("another parameter", always(records(lambda c: c.array_records[UPDATE].update({"x": Array(np.zeros(1))})))),
    Liar("another record", always(records(lambda c: c.update({"loss": MetricRecord({"loss": 0.1})})))),
    Liar("another array record", always(records(lambda c: c.update({"big": ArrayRecord([np.zeros(1 << 20)])})))),
    Liar("another round", always(header(round=-1))),
    Liar("another attempt", always(header(attempt=99))),
    Liar("another run", always(header(run="another"))),
    Liar("another version", always(header(version=1))),
    Liar("ill-typed header", always(header(round=0.5))),
    Liar("a million users", always(report(users=10**6))),
    Liar("a negative number of users", always(report(users=-1))),
    Liar("users as a fraction", always(report(users=0.5))),
    Liar("counts that were not asked for", always(report(counts=[1.0]))),
    Liar("a reply of an old round", replay),
    # -- updates that can be used, and mislead
    Liar("a huge update", always(values(lambda a: a * 0 + np.float32(1e30)))),
    Liar("the opposite update", always(values(lambda a: -a))),
    Liar("no users", always(report(users=0))),
    # -- now and then
    Liar("every other update", sometimes(error(2), lambda count: count % 2 == 0)),
    Liar("well at first", sometimes(error(2), lambda count: count >= 2)),
    Liar("offline after each instruction", takes=never("train"), away=lambda at: at % 20 > 10),
    Liar("here and gone", away=lambda at: at % 4 > 2),
    Liar("gone for good", away=lambda at: at > 2),
    # -- whom it hosts
    Liar("never says whom it hosts", takes=never(QUERY_USERS)),
    Liar("says it hours late", takes=lambda kind: LATE if kind == QUERY_USERS else 0.3),
    Liar("an error for an answer", query=always(error(2))),
    Liar("hosts no user", query=always(claims([]))),
    Liar("a user twice", query=always(claims([EVERYONE[0]] * 2))),
    Liar("claims everyone first, then errs", always(error(2)), always(claims(EVERYONE)), lambda kind: 0.01),
    Liar("claims everyone first, and is silent", None, always(claims(EVERYONE)), never("train", 0.01)),
    Liar("invents a thousand users, then errs", always(error(2)), always(claims(INVENTED))),
    Liar("invents a thousand users, and is silent", None, always(claims(INVENTED)), never("train")),
    Liar("users of another type", query=always(records(lambda c: c.update({COHORT: ArrayRecord([np.zeros(3)])})))),
    Liar("users of another model", query=always(header(schema="0" * 64))),
    Liar("a witness of nonsense", query=always(records(lambda c: c.update({WITNESS: ConfigRecord({"count": -5})})))),
]  # fmt: skip


def federation(
    clock: FakeClock, nodes: int, liars: dict[int, Liar], task: str = "support.federation:TinyTask"
) -> TimedGrid:
    """Nodes 2, 3, ... of which some lie."""

    def made(of: str) -> dict[int, Lie]:
        makers = {node: getattr(liar, of) for node, liar in liars.items()}
        return {node: make() for node, make in makers.items() if make is not None}

    return TimedGrid(
        nodes,
        clock,
        made("train"),
        made("query"),
        lambda node, at: node in liars and liars[node].away(at),
        lambda node, kind: liars[node].takes(kind) if node in liars else 0.5,
        task,
    )


class ManyUsers(TinyTask):
    """Two hundred users with two rows each."""

    def users(self) -> UserTable:
        generator = np.random.default_rng(5)
        x = generator.normal(size=(400, 3)).astype(np.float32)
        y = (x @ np.array([1.0, -2.0, 0.5], np.float32)).astype(np.float32)
        return UserTable.grouped(np.repeat([f"user-{i:03d}" for i in range(200)], 2), {"x": x, "y": y})
