"""One seed, from its first population to its last check."""

from __future__ import annotations

from dataclasses import dataclass

from fieldfare_server.ledger import Ledger
from simulator.actors import Federation
from simulator.oracle import Violation, need
from simulator.world import World, world

MACHINES = ("coordinator", "admin", "api")
MIDNIGHT = 1_700_006_400.0
"""Between a Tuesday and a Wednesday."""


@dataclass
class Told:
    """What came of one seed."""

    seed: int
    rounds: int
    violation: str
    history: list[tuple[float, str, str]]
    seconds: float
    """Simulated."""
    log: str
    """The hash of the log's last row: two runs of one seed end alike."""


class Nemesis:
    """What goes wrong with the disk, between two turns."""

    def __init__(self, place: World) -> None:
        self.world, self.rng = place, place.rng
        self._next = place.now + self.rng.uniform(1, 10) / place.hazard
        self._until = 0.0
        self._newest: tuple[bytes, bytes] | None = None
        self._copy: tuple[int, tuple[bytes, bytes]] | None = None

    def __call__(self) -> None:
        """Act, if it is time."""
        now = self.world.now
        if self._until and now >= self._until:
            self._end()
        if now < self._next or not self.world.quiet or self._until:
            return
        self._next = now + self.rng.uniform(3, 30) / self.world.hazard
        acts = (self._fill, self._checkpoint, self._keep_copy, self._put_back, self._forget)
        self.rng.choices(acts, (1, 1, 2, 3, 2))[0]()

    def _fill(self) -> None:
        self.world.say("the disk is full")
        self.world.full, self._until = True, self.world.now + self.rng.uniform(1, 70)

    def _checkpoint(self) -> None:
        self.world.checkpoint()

    def _keep_copy(self) -> None:
        self._copy = (self.world.oracle.count, self.world.copy())

    def _put_back(self) -> None:
        """An old copy of the database, under processes that run or that are started again."""
        if self._copy is not None:
            self._replace(*self._copy, "an old copy is put back")

    def _forget(self) -> None:
        """The disk, or a standby that lagged, has lost what it said was durable."""
        files = self.world.lose_synced()
        if files is not None:
            self._replace(0, files, "what was synced is lost")

    def _replace(self, count: int, files: tuple[bytes, bytes], said: str) -> None:
        place, newest = self.world, self.world.copy()
        restart = not place.server or self.rng.random() < 0.5
        if restart:
            place.kill_all()
        place.place(files)
        count = place.log_count()
        if count >= min(place.held(machine) for machine in MACHINES):
            place.place(newest)  # nobody has seen more
            return
        place.old, self._newest, self._until = True, newest, place.now + self.rng.uniform(10, 40)
        place.say(f"{said}: the log ends in row {count}{', and all start again' if restart else ''}")

    def finish(self) -> None:
        """Put right what is wrong with the disk."""
        self.world.kill_all()
        if self._until:
            self._end()

    def _end(self) -> None:
        self._until = 0.0
        if self._newest is not None:
            if not self.world.quiet:
                self._until = self.world.now
                return
            self.world.place(self._newest)
            self._newest, self.world.old, self.world.whole_since = None, False, self.world.now
            self.world.say("the newest copy is back")
        if self.world.full:
            self.world.full, self.world.whole_since = False, self.world.now
            self.world.say("the disk has room")


def simulate(
    seed: int, rounds: int = 120, seconds: float = 4000.0, *, windows: bool = False, hazard: float = 1.0
) -> Told:
    """The history of `seed`, until it has so many committed rounds or simulated seconds.

    windows: it goes on over midnight, and the officer sets calendar windows. hazard: as of `World`.
    """
    with world(seed, hazard) as place:
        if windows:
            place.now = MIDNIGHT - place.rng.uniform(60, 300)
        start, violation = place.now, ""
        try:
            clients = Federation(place, windows)
            clients.prepare()
            for machine in MACHINES:
                Ledger.open(str(place.path), head_file=place.folder / f"{machine}.head").close()
            for name in ("coordinator-1", "coordinator-2"):
                place.add(name, "coordinator", clients.coordinate)
            place.add("admin", "admin", clients.administrate)
            for name in ("trainer-1", "trainer-2"):
                place.add(name, "api", clients.train)
            place.add("reader", "api", clients.read)
            nemesis = Nemesis(place)
            place.run(lambda: place.oracle.steps >= rounds or place.now > start + seconds, nemesis)
            nemesis.finish()
            _check_end(place)
        except Violation as broken:
            violation = str(broken)
            place.say(f"VIOLATION: {violation}")
        return Told(seed, place.oracle.steps, violation, place.history, place.now - start, place.oracle.hash)


def _check_end(place: World) -> None:
    """Every machine goes on from its head, the tables say what the log proves, and the log has what was told."""
    place.kill_all()
    for machine in MACHINES:
        with Ledger.open(str(place.path), head_file=place.folder / f"{machine}.head") as ledger:
            need(ledger.head().count == place.oracle.count, "the log has other rows than were committed")
            checked = ledger.proof.advance()
            need(checked.whole and checked.hash == place.oracle.hash, f"the tables disprove the log: {checked.fault}")
            for name in ledger.population_names():
                place.oracle.read(ledger.population(name), place.oracle.count, place.oracle.losses[name].now)
                for charge in ledger.charges(name):
                    said = place.oracle.fold.charges[name, charge.key]["state"]
                    need(charge.state == said, f"charge {charge.key} is shown as {charge.state}, and is {said}")
            for run in ledger.runs(limit=1000).items:
                place.oracle.read_run(run)
