"""What one seed decides: who runs when, what the clocks say, what dies, and what the disk still has afterwards.

Every process is a greenlet of one thread. It gives way where the ledger's code reads, writes, sleeps or passes a fault
point, and nowhere else. So a seed fixes the whole history, and nothing in it takes real time.
"""

from __future__ import annotations

import pickle
import random
import secrets
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from greenlet import getcurrent, greenlet
from sqlalchemy import Connection, Engine, Row, create_engine, event
from sqlalchemy.exc import OperationalError

from fieldfare_server import faults
from fieldfare_server.ledger import Ledger, chain
from fieldfare_server.ledger import ledger as front
from fieldfare_server.ledger.sql import database, hold, leases, proof, segments, takeover
from simulator.oracle import Oracle, Violation

T = TypeVar("T")
LEASE = 30.0
SKEW = 1.5
"""Most seconds by which a machine's clock is off."""
_FRAME, _WAL_HEADER = 24, 32


class Killed(BaseException):
    """This process is dead. Nothing of it runs after this."""


class ServerGone(Exception):
    """What a driver says when the server does not answer."""

    sqlstate = "08006"


class Process:
    """One process, restarted for as long as the world lasts."""

    def __init__(self, world: World, name: str, machine: str, live: Callable[[Process], None]) -> None:
        self.world, self.name, self.machine, self._live = world, name, machine, live
        self.life = 0
        self.wake, self.dead = 0.0, False
        self.looked = 0.0
        """When it last looked at the clock: what it writes then has that time."""
        self.busy = 0
        """How many connections it has in its hands."""
        self.rows: list[dict[str, Any]] = []
        """Rows of the log that its present call appended."""
        self.steers: str | None = None
        """The run that its present call renews the lease of."""
        self.skew = world.rng.uniform(-SKEW, SKEW)
        self.greenlet = greenlet(self._body)

    @property
    def id(self) -> str:
        """The name of this life; a process that is restarted is another one."""
        return f"{self.name}.{self.life}"

    def clock(self) -> float:
        """Seconds since 1970, as this machine believes."""
        self.looked = self.world.now
        return self.world.now + self.skew

    def open(self) -> Ledger:
        """The ledger, as a command of this machine opens it, with the head that the machine holds."""
        return Ledger.open(
            str(self.world.path),
            head_file=self.world.folder / f"{self.machine}.head",
            coordinator=self.machine == "coordinator",
            lease_seconds=LEASE,
            clock=self.clock,
        )

    def _body(self) -> None:
        while True:
            try:
                if self.life:
                    self.world.sleep(self.world.rng.uniform(0.1, 10.0), self)
                self._live(self)
            except Killed:
                if self.world.over:
                    return
                self.world.say("dies", self)
            self.dead, self.steers, self.busy = False, None, 0
            self.skew = self.world.rng.uniform(-SKEW, SKEW)
            self.life += 1
            self.world.oracle.gone(self.name, self.life)


class World:
    """One history: the processes, their clock, the store and the oracle that hears what every client is told."""

    def __init__(self, seed: int, folder: Path, hazard: float = 1.0) -> None:
        self.hazard = hazard
        """How often all goes wrong, as a share of how often it does by default."""
        self.seed, self.folder = seed, folder
        self.rng, self._bits = random.Random(seed), random.Random(~seed)
        self.now = 1_700_000_000.0
        self.server = self.rng.random() < 0.5
        """A database server with a synchronous standby; else a file on the machine's own disk."""
        self.path = folder / "ledger.sqlite3"
        self.oracle = Oracle(lambda: self.now)
        self.processes: list[Process] = []
        self.history: list[tuple[float, str, str]] = []
        self.full = self.old = False
        """The disk is full. An old copy lies where the ledger was."""
        self.over = False
        """Who dies now is not started again."""
        self.whole_since = 0.0
        """When the disk last became whole again."""
        self.risk = hazard * self.rng.choice((0.0, 0.001, 0.004))
        """How likely a process dies at each step."""
        self.pauses = hazard * self.rng.choice((0.0, 0.005, 0.02))
        self.lost = hazard * self.rng.choice((0.0, 0.01, 0.05)) if self.server else 0.0
        """How likely the answer of the server is lost."""
        self.cuts = hazard * self.rng.choice((0.0, 0.0005, 0.002))
        """How likely the power fails, or the server, while a commit is written."""
        self._writer: Process | None = None
        self._frames: list[int] = [0]
        """Where the write-ahead log ended after each commit since it began anew."""
        self._pending: Callable[[], None] | None = None
        self._held: dict[Path, list[bytes]] = {}
        """What each head file said before its last replacements that a power cut may undo."""
        self._locked: set[Path] = set()
        self._peek: sqlite3.Connection | None = None

    # -- time and turns ---------------------------------------------------------------------------------------------

    def say(self, text: str, who: Process | None = None) -> None:
        """Add a line to the history."""
        text = text.replace(str(self.folder), "")
        self.history.append((self.now, "world" if who is None else who.id, text))

    @property
    def current(self) -> Process | None:
        """The process whose turn it is."""
        return getattr(getcurrent(), "process", None)

    def add(self, name: str, machine: str, live: Callable[[Process], None]) -> None:
        """Start a process."""
        process = Process(self, name, machine, live)
        process.greenlet.process = process  # type: ignore[attr-defined]
        process.wake = self.now + self.rng.random()
        self.processes.append(process)

    def disturbed(self, since: float) -> bool:
        """Whether the disk was full, or an old copy lay there, after `since`."""
        return self.full or self.old or self.whole_since >= since

    def sleep(self, seconds: float, process: Process | None = None) -> None:
        """Let the others run for so long."""
        process = process or self.current
        if process is None:
            self.now += seconds
            return
        if self._writer is process:
            self._writer = None
        process.wake = self.now + seconds
        process.greenlet.parent.switch()  # type: ignore[union-attr]
        if process.dead:
            raise Killed

    def step(self, often: float = 0.3) -> None:
        """A place where others may go first, and where this process may be paused, or die."""
        process = self.current
        if process is None:
            return
        if process.dead:
            raise Killed
        draw = self.rng.random()
        if draw < self.risk:
            process.dead = True
            raise Killed
        if draw < self.risk + self.pauses:
            self.say("is paused", process)
            self._yield(process, self.rng.uniform(0.5, 2.5) * LEASE)
        elif draw < self.risk + self.pauses + often:
            self._yield(process, 0.0)

    def _yield(self, process: Process, seconds: float) -> None:
        process.wake = self.now + seconds
        process.greenlet.parent.switch()  # type: ignore[union-attr]
        if process.dead:
            raise Killed

    def run(self, enough: Callable[[], bool], nemesis: Callable[[], None]) -> None:
        """Give turns until `enough`; `nemesis` acts between two turns."""
        while not enough():
            nemesis()
            ready = [process for process in self.processes if process.wake <= self.now]
            if not ready:
                self.now = min(process.wake for process in self.processes)
                continue
            self.now += self.rng.random() * 0.02
            self.rng.choice(ready).greenlet.switch()
            if self._pending is not None:
                act, self._pending = self._pending, None
                act()

    def kill_all(self) -> None:
        """End every process where it stands."""
        for process in self.processes:
            if process.greenlet:  # it has begun, and has not ended
                process.dead = True
                process.greenlet.switch()
        self._writer = None

    # -- what the ledger's code meets -------------------------------------------------------------------------------

    def token_hex(self, count: int = 32) -> str:
        return self._bits.randbytes(count).hex()

    def token_bytes(self, count: int = 32) -> bytes:
        return self._bits.randbytes(count)

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def holder_is_dead(self, holder: str) -> bool:
        """A holder of this machine is seen to be dead; of another machine nothing is known."""
        process = self.current
        machine, _, life = holder.partition("/")
        return process is not None and machine == process.machine and self.oracle.is_gone(life)

    def point(self, name: str) -> None:
        """A step of the ledger's code: others run, processes die, answers get lost, the power fails."""
        process = self.current
        if name == "ledger.transaction.committed":
            self._committed(process)
        elif name == "ledger.transaction.worked":
            if process is not None and self.rng.random() < self.lost:
                self.say("the connection is lost before the commit", process)
                self._gone()
            self._frame_before = self._frame()
        self.step(0.05)

    def _gone(self) -> None:
        raise OperationalError("", {}, ServerGone("server closed the connection"), connection_invalidated=True)

    def _committed(self, process: Process | None) -> None:
        if self._writer is process:
            self._writer = None
        lost = False
        if process is not None and not self.old and self.rng.random() < self.cuts:
            lost = self.rng.random() < 0.5
            self.say(
                f"{'the primary' if self.server else 'the power'} fails, {'without' if lost else 'with'} its commit",
                process,
            )
            before = self._frame_before
            if not self.server:
                if not lost:
                    self._take(process)
                self._pending = lambda: self._power_cut(before if lost else None)
                process.dead = True
                raise Killed
            if lost and any(each.busy for each in self.processes):
                lost = False
            if lost:
                self._pending = lambda: self._fail_over(before)
                self._yield(process, 0.0)
                self._gone()
            self._take(process)
            self._gone()
        self._take(process)
        if process is not None and self.rng.random() < self.lost:
            self.say("the answer to the commit is lost", process)
            self._gone()

    def _take(self, process: Process | None) -> None:
        frame = self._frame()
        if frame < self._frames[-1]:
            self._frames = [0]
        self._frames.append(frame)
        if self.old:
            self._require_refusal(process)
            return
        if process is None:
            self.oracle.follow(self._rows(), "setup", None, self.now)
        else:
            process.rows += self.oracle.follow(self._rows(), process.id, process.steers, process.looked)

    def _rows(self) -> list[dict[str, Any]]:
        if self._peek is None:
            self._peek = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, isolation_level=None)
            self._peek.row_factory = sqlite3.Row
        query = "SELECT * FROM audit WHERE id > ? ORDER BY id"
        return [dict(row) for row in self._peek.execute(query, (self.oracle.count,))]

    def log_count(self) -> int:
        """How many rows the log has that lies on the disk now."""
        with sqlite3.connect(self.path, isolation_level=None) as connection:
            count: int = connection.execute("SELECT count FROM head").fetchone()[0]
        connection.close()
        return count

    def _require_refusal(self, process: Process | None) -> None:
        machine = process.machine if process else ""
        raise Violation(f"a process of the {machine}'s machine, which holds a newer head, writes into an old copy")

    # -- the disk ---------------------------------------------------------------------------------------------------

    def _frame(self) -> int:
        """How many frames of the write-ahead log count (the wal-index's mxFrame)."""
        try:
            with open(f"{self.path}-shm", "rb") as file:
                return int(struct.unpack("=I", file.read(20)[16:])[0])
        except (OSError, struct.error):
            return 0

    @property
    def quiet(self) -> bool:
        """Whether no process has a transaction open, or waits for its turn to write."""
        return self._writer is None and not any(process.busy for process in self.processes)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database file."""
        with sqlite3.connect(self.path, isolation_level=None) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._frames = [self._frame()]
        connection.close()

    def copy(self) -> tuple[bytes, bytes]:
        """The database file and its write-ahead log, as they lie on the disk."""
        log = Path(f"{self.path}-wal")
        return self.path.read_bytes(), log.read_bytes() if log.exists() else b""

    def place(self, files: tuple[bytes, bytes]) -> None:
        """Put these files where the ledger is. No transaction may be open."""
        if self._peek is not None:
            self._peek.close()
            self._peek = None
        if _engine is not None:
            _engine.dispose()
        for path, content in zip((self.path, Path(f"{self.path}-wal")), files, strict=True):
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        Path(f"{self.path}-shm").unlink(missing_ok=True)
        self._frames = [0]

    def _cut(self, frames: int) -> tuple[bytes, bytes]:
        """The files with a log that ends after so many frames, and perhaps with a torn piece of the next."""
        main, log = self.copy()
        if not log:
            return main, log
        size = struct.unpack(">I", log[8:12])[0] + _FRAME
        now = self._frame()
        end = _WAL_HEADER + size * (frames if frames <= now else 0)
        torn = bytearray(log[end : end + self.rng.randrange(2 * size)])
        if torn:
            torn[self.rng.randrange(len(torn))] ^= 0x55
            torn = torn[: size - 1] if self.rng.random() < 0.5 else torn
        return main, log[:end] + bytes(torn[: max(0, size - 1)] if frames == now else torn)

    def _power_cut(self, frames: int | None) -> None:
        """All processes die; the log has what was synced, and perhaps a torn piece. Renames of heads may be undone."""
        files = self.copy() if frames is None else self._cut(frames)
        self.kill_all()
        self.place(files)
        for path, older in sorted(self._held.items()):
            if older and self.rng.random() < 0.5:
                path.write_bytes(self.rng.choice(older))
                self.say(f"{path.name} is an older one after the power cut")
            older.clear()

    def _fail_over(self, frames: int) -> None:
        """The standby takes over: it has every commit that was acknowledged, and not the one under way."""
        self.place(self._cut(frames))

    def lose_synced(self) -> tuple[bytes, bytes] | None:
        """The files without the newest commits, as a disk that lies about fsync leaves them; None where it cannot."""
        now = [frame for frame in self._frames if 0 < frame < self._frame()]
        return self._cut(self.rng.choice(now[-20:])) if now else None

    def held(self, machine: str) -> int:
        """How many rows the head of a machine's file counts; 0 without one."""
        path = self.folder / f"{machine}.head"
        return int(path.read_text().split()[2]) if path.exists() else 0

    def replace_file(self, path: Path, content: bytes, mode: int = 0o600, *, at_once: bool = True) -> None:
        """`atomic.replace_file` on the simulated disk."""
        if path.suffix == ".head":
            self.step(0.1)
            if path.exists():
                self._held[path] = [] if at_once else [*self._held.get(path, [])[-2:], path.read_bytes()]
                before = int(path.read_text().split()[2])
                if int(content.split()[2]) < before and not self.old:
                    raise Violation(f"{path.name} goes back from row {before} to row {int(content.split()[2])}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    @contextmanager
    def alone_at(self, path: Path) -> Iterator[None]:
        """`atomic.alone_at` in the simulated time."""
        process = self.current
        while process is not None and path in self._locked:
            self._yield(process, 0.01)
        self._locked.add(path)
        try:
            yield
        finally:
            self._locked.discard(path)

    @contextmanager
    def locked(self, kept: segments.Segments) -> Iterator[None]:
        """`Segments._locked` in the simulated time."""
        kept.directory.mkdir(exist_ok=True)
        with self.alone_at(kept.directory):
            yield


class SimulatedDatabase(database.Database):
    """The ledger's `Database`, whose every read and write is a place where others may go first."""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        world = here()
        world.step()
        process = world.current
        with super().read() as connection:
            if process is not None:
                process.busy += 1
            try:
                yield connection
            finally:
                if process is not None:
                    process.busy -= 1

    def write(self, work: Callable[[Connection, str, Row[Any]], T]) -> T:
        world = here()
        world.step()
        process = world.current
        try:
            return super().write(work)
        finally:
            if world._writer is process:
                world._writer = None

    def _check_file(self) -> None:
        if not here().server:
            super()._check_file()

    def close(self) -> None:
        """Leave the connections to the processes that follow: `World.place` closes them when it moves the files."""


class Walks:
    """The states that walks over the log of one world came to, for a process that walks over the same rows again.

    Its rows are compared, each value of each; what the ledger's code makes of equal rows is not worked out again.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._states: dict[int, bytes] = {}
        """After so many of those rows."""
        self._walk = proof.Replay._walk

    def walk(self, replay: proof.Replay, rows: list[dict[str, Any]]) -> None:
        """`Replay._walk` from the first row, on from the last state that is known."""
        if replay._rows or replay._thorough:
            self._walk(replay, rows)
            return
        same = next((i for i, pair in enumerate(zip(rows, self._rows)) if pair[0] != pair[1]), None)  # noqa: B905
        alike = min(len(rows), len(self._rows)) if same is None else same
        begin = max((number for number in self._states if number <= alike), default=0)
        if begin:
            replay._state, replay._touched = pickle.loads(self._states[begin])
            replay._rows, replay._hash = begin, rows[begin - 1]["hash"]
        self._walk(replay, rows[begin:])
        if begin < len(rows):
            if alike < len(self._rows):
                self._states = {number: state for number, state in self._states.items() if number <= alike}
            self._rows = rows
            self._states[len(rows)] = pickle.dumps((replay._state, replay._touched), pickle.HIGHEST_PROTOCOL)


_world: World | None = None
_engine: Engine | None = None


def here() -> World:
    """The world of now."""
    assert _world is not None
    return _world


def _make_engine(*arguments: Any, **options: Any) -> Engine:
    """One engine for all simulated processes of all seeds: what SQLAlchemy compiles is compiled once."""
    global _engine
    if _engine is None:
        _engine = create_engine(*arguments, **{**options, "creator": _connect})
        event.listen(_engine, "begin", _before_begin)
    return _engine


def _connect() -> sqlite3.Connection:
    name = f"file:{here().path}?mode=rw"
    connection = sqlite3.connect(name, uri=True, timeout=0, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # the world says when
    return connection


def _before_begin(connection: Connection) -> None:
    """One writer at a time; the others wait in the simulated time. A full disk has no more pages."""
    world = here()
    if not connection.get_execution_options().get("fieldfare_write", False):
        return
    process = world.current
    while process is not None and world._writer not in (None, process):
        process.busy += 1
        try:
            world._yield(process, 0.05)
        finally:
            process.busy -= 1
    world._writer = process
    info = connection.connection.info
    if info.get("full", False) != world.full:
        info["full"] = world.full
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one() if world.full else 1 << 30
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


_template: bytes | None = None


def _new_ledger(path: Path) -> None:
    """An empty ledger: made once by the migrations, then copied."""
    global _template
    if _template is None:
        same = patch.object(secrets, "token_hex", lambda count: "7" * 2 * count)
        with same, Ledger.open(str(path), create=True) as ledger:
            ledger.proof.advance()  # remembers for good what the tables' definitions are
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        _template = path.read_bytes()
        path.unlink()
        for rest in ("-wal", "-shm"):
            Path(f"{path}{rest}").unlink(missing_ok=True)
    path.write_bytes(_template)


@contextmanager
def world(seed: int, hazard: float = 1.0) -> Iterator[World]:
    """A world of this seed: inside, the ledger's code runs in it."""
    global _world
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fieldfare-sim-", dir=memory if memory.is_dir() else None))
    try:
        _new_ledger(folder / "ledger.sqlite3")
        with ExitStack() as patches:
            new = _world = World(seed, folder, hazard)
            for module in (database, hold, takeover):
                patches.enter_context(patch.object(module, "time", new))
            for name in ("token_hex", "token_bytes"):
                patches.enter_context(patch.object(secrets, name, getattr(new, name)))
            patches.enter_context(patch.object(database, "create_engine", _make_engine))
            patches.enter_context(patch.object(front, "Database", SimulatedDatabase))
            patches.enter_context(patch.object(leases, "process_is_gone", new.holder_is_dead))
            for name in ("replace_file", "alone_at"):
                patches.enter_context(patch.object(chain, name, getattr(new, name)))
            walks = Walks()
            patches.enter_context(patch.object(proof.Replay, "_walk", lambda replay, rows: walks.walk(replay, rows)))
            patches.enter_context(patch.object(segments.Segments, "_locked", lambda kept: new.locked(kept)))
            patches.enter_context(patch.object(faults, "point", new.point))
            try:
                yield new
            finally:
                # What hangs in the middle of a call would go on in the world of another seed.
                new.over = True
                new.kill_all()
                new.place((b"", b""))
    finally:
        _world = None
        shutil.rmtree(folder)
