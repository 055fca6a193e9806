"""The ledger: present, of this version, whole, not rolled back, its clock right, and a coordinator at every run."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, select, text

from fieldfare.errors import FieldfareError, Refused
from fieldfare.participation import PRESENCE
from fieldfare.text import up
from fieldfare_server.deployment.supervisor import under_way
from fieldfare_server.doctor.finding import Finding, fault, fine, warning
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.chain import HeadFile
from fieldfare_server.ledger.holders import is_simulation
from fieldfare_server.ledger.sql import models, roles, rows
from fieldfare_server.ledger.sql.database import understood
from fieldfare_server.run.ending import left_behind
from fieldfare_server.run.presence.standing import QUARANTINE_ATTEMPTS, QUARANTINED

# Most seconds between the clocks of coordinator and database: a lease lasts 30.
CLOCKS = 5.0
_PATIENCE = 5.0
# How many of the newest journal rows are searched for a clock that went back.
_LOOKED_BACK = 10_000
# Seconds: an older jump of the clock is no news.
_RECENT = 7 * 86400.0
# Seconds: with less than this, or less than a quarter of what it began with, a reservation is about to expire.
_NEARLY_EXPIRED = 86400.0


def check_ledger(home: StateDirectory) -> Iterator[Finding]:
    """Check everything about the ledger of `home`. Opens it without a head file, so that it writes none."""
    try:
        with Ledger.open(home.ledger, patience=_PATIENCE) as opened:
            yield fine("ledger", f"{opened.url} answers; its version is {opened.version}.")
            yield _check_role(opened)
            yield _check_clock(opened)
            yield _check_clock_history(opened)
            yield from _check_head_place(home)
            yield from _check_chain(opened, home)
            yield from _check_runs(opened)
            yield from _check_reservations(opened, time.time())
            yield from _check_nodes(opened)
            for run in left_behind(home, opened):
                yield warning(
                    f"key of run {run}", "the run has ended; key or checkpoints are here.", "fieldfare verify"
                )
            yield from _check_budgets(opened)
    except FieldfareError as error:
        yield report_refusal(
            "ledger", error, "start the database, or name the ledger by --ledger or FIELDFARE_LEDGER_FILE"
        )


def has_only_simulations(home: StateDirectory) -> bool:
    """Return whether the ledger of `home` can be read, has populations, and no node of a federation ever met
    one of them.

    That holds for a population that is marked as simulated, and for one of people all of whose runs, of which
    there is one at least, were simulations on one machine. A population of people without runs waits for its
    nodes.
    """
    runs, populations = models.runs.c, models.populations.c
    try:
        with Ledger.open(home.ledger, patience=_PATIENCE) as opened, opened.database.read() as connection:
            known = connection.execute(select(populations.id, populations.simulated)).all()
            runs_of = connection.execute(select(runs.population_id, runs.started_by).distinct()).all()
    except (FieldfareError, OSError):  # of a home that is closed to this user
        return False
    people = {population for population, simulated in known if not simulated}
    federated = {population for population, holder in runs_of if not is_simulation(holder)}
    return bool(known) and people <= {population for population, _ in runs_of} - federated


def report_refusal(check: str, error: FieldfareError, mend: str) -> Finding:
    """Return a refusal by another part of the program, as a finding."""
    if isinstance(error, Refused):
        return fault(check, f"{error.what}: {error.why}", error.nearest or mend)
    return fault(check, str(error), mend)


def _check_role(opened: Ledger) -> Finding:
    """Check who else may write to the ledger: other accounts where it is a file, the tables' owner in a database."""
    check = "role of the ledger"
    path = opened.database.path
    if path is not None:
        open_to_others = [
            f"{each} (mode {mode:o})"
            for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")))
            if each.exists() and (mode := stat.S_IMODE(each.stat().st_mode)) & 0o077
        ]
        if open_to_others:
            mend = f"chmod 600 {path}*"
            return fault(check, f"other users can read or write {', '.join(open_to_others)}.", mend)
        return fine(check, "the ledger is a file for its owner alone.")
    with opened.database.read() as connection:
        name, part = roles.role_of(connection)
    if part == "owner":
        return warning(
            check,
            f"{name} owns the ledger's tables: a program that takes this service over can change limits and tokens, "
            "and what the journal says.",
            "`fieldfare migrate --roles DIRECTORY` makes a role for each service; keep the owner's for migrations",
        )
    if part is None:
        return warning(check, f"{name} is none that `fieldfare migrate` knows.", "the role of this service")
    return fine(check, f"{name} has the rights of the part {part}, and no other.")


def _check_clock(opened: Ledger) -> Finding:
    check, mend = "clock of the ledger", "let both machines' clocks be set by NTP (chrony)"
    with opened.database.read() as connection:
        newest = float(connection.execute(text("SELECT max(at) FROM audit")).scalar() or 0.0)
        if opened.database.path is None:
            ahead = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
            if abs(ahead - time.time()) > CLOCKS:
                difference = f"the database's clock and ours differ by {ahead - time.time():+.0f} s."
                return warning(check, f"{difference} Leases and tokens would end early or late.", mend)
    if newest > time.time() + CLOCKS:
        later = (
            f"the newest row was written {newest - time.time():.0f} s from now: this clock went back, or that one was"
        )
        return warning(check, f"{later} ahead. Leases, schedules and reservations would end late.", mend)
    return fine(check, "agrees with ours.")


def _check_clock_history(opened: Ledger) -> Finding:
    """Check whether time went back between two rows of the journal that were written lately."""
    check, count = "clock of the journal", 0
    last, jump, jumped_at = 0.0, 0.0, 0
    with opened.database.read() as connection:
        scheduled = _scheduled_runs(connection)
        c = models.journal.c
        newest = select(c.id, c.at, c.run).order_by(c.id.desc()).limit(_LOOKED_BACK).subquery()
        for number, at, run in connection.execute(select(newest).order_by(newest.c.id)):
            if run in scheduled:
                continue
            if last - at > max(jump, CLOCKS) and at > time.time() - _RECENT:
                jump, jumped_at = last - at, number
            last, count = max(last, at), count + 1
    if jumped_at:
        return warning(
            check,
            f"row {jumped_at} was written {jump:.0f} s before a row that stands before it: a clock went back, or the "
            "clocks of two writers differ.",
            "let the clocks of all machines that write to the ledger be set by NTP (chrony), slewed and never stepped",
        )
    return fine(check, f"{count} rows follow one another in time.")


def _scheduled_runs(connection: Connection) -> set[str]:
    """Return runs whose rows carry scheduled times, which are earlier than the real ones (secret presence)."""
    run, population = models.runs.c, models.populations.c
    query = (
        select(run.id)
        .join_from(models.runs, models.populations, run.population_id == population.id)
        .where(population.adjacency == PRESENCE)
    )
    return set(connection.execute(query).scalars())


def _check_head_place(home: StateDirectory) -> Iterator[Finding]:
    """Check whether one restored directory would put back the ledger and the head that should expose it."""
    url = understood(home.ledger)
    if url.get_backend_name() != "sqlite" or not url.database:
        return
    ledger, head = Path(url.database).absolute().parent.resolve(), home.head_file.parent.resolve()
    if ledger == head or ledger in head.parents or head in ledger.parents:
        yield warning(
            "place of the head",
            f"the ledger and its head are both below {ledger if ledger in head.parents else head}: an older copy of "
            "that directory puts back both, and spent budget would reappear unnoticed.",
            "keep a head elsewhere too: FIELDFARE_WITNESS on the nodes, or store what GET /v1/audit/head answers where "
            "nothing is overwritten, and compare by `fieldfare verify --head`",
        )
    else:
        yield fine("place of the head", "the head is not in the ledger's directory.")


def _check_chain(opened: Ledger, home: StateDirectory) -> Iterator[Finding]:
    try:
        held = HeadFile(home.head_file).read()
    except FieldfareError as error:
        yield report_refusal("held head", error, "restore this volume's backup")
        held = None
    else:
        if held is not None:
            yield fine("held head", f"this volume holds row {held.count}.")
        elif any(home.root.glob("*/noise.key")):
            yield fault(
                "held head",
                f"{home.head_file} is gone: a ledger restored from an old copy would go unnoticed.",
                "`fieldfare verify --head` with a head that a node or a witness kept; else `fieldfare verify --hold`",
            )
        else:
            yield fine("held head", "none yet: no run was started from here.")
    report = verify(opened, held=[held] if held else [])
    if report.fault is not None:
        yield fault(
            "chain",
            f"the first row that does not fit is {report.fault}.",
            "stop the coordinator, keep a copy, restore the newest backup; `fieldfare verify` checks charges too",
        )
    else:
        yield fine("chain", f"{report.checked.get('audit', 0)} rows follow one another and say what the tables say.")


def _check_runs(opened: Ledger) -> Iterator[Finding]:
    runs = under_way(opened)
    for run in runs:
        if run.state == "interrupted":
            who, mend = "coordinator", f"`fieldfare supervise` resumes it; by hand: fieldfare run --resume {run.id}"
            waits = f" It said: {run.message}" if run.message else ""
            if is_simulation(run.started_by):
                who, mend = "simulation", f"fieldfare simulate --resume {run.id}"
            yield warning(
                f"lease of run {run.id}", f"no {who} holds it at round {run.next_round} of {run.rounds}.{waits}", mend
            )
        if run.trust_node_ids:
            yield warning(
                f"identities of run {run.id}",
                "it trusts the ids that nodes claim (trust_node_ids): participation limits rest on that.",
                "authenticate nodes, and plan without trust_node_ids",
            )
    if not any(run.state == "interrupted" for run in runs):
        yield fine("leases", f"{len(runs)} runs under way, all of them held.")


def _check_reservations(opened: Ledger, now: float) -> Iterator[Finding]:
    """Find runs without a coordinator whose reservation ends soon: then they end, with what they have."""
    unheld = {run.id for run in under_way(opened) if run.state == "interrupted"}
    with opened.database.read() as connection:
        for run, seconds, ends_at in rows.reservations(connection):
            left = ends_at - now
            if run not in unheld or left >= max(_NEARLY_EXPIRED, seconds / 4):
                continue  # a coordinator renews it, or there is time
            when = f"in {left / 3600:.1f} hours" if left > 0 else "now"
            yield warning(
                f"reservation of run {run}",
                f"no coordinator holds the run: it ends {when}, and cannot be resumed afterwards.",
                f"resume it (fieldfare run --resume {run}), or let its budget return to the population",
            )


def _check_nodes(opened: Ledger) -> Iterator[Finding]:
    """Find nodes that the runs under way have put in quarantine, as their rounds count them."""
    runs, bad = under_way(opened), False
    c = models.rounds.c
    with opened.database.read() as connection:
        for run in runs:
            newest = select(c.rejects).where(c.run_seq == run.seq).order_by(c.id.desc()).limit(QUARANTINE_ATTEMPTS)
            count = sum(
                int(json.loads(rejects).get(QUARANTINED, 0)) for rejects in connection.execute(newest).scalars()
            )
            if count:
                bad = True
                yield warning(
                    f"nodes of run {run.id}",
                    f"{count} times a node was put in quarantine in the newest {QUARANTINE_ATTEMPTS} attempts at "
                    "rounds: it answers late, or what it answers is refused, time after time.",
                    "the rejects of its rounds say why; the log of the node says more. A resumed run asks it again",
                )
    if not bad:
        yield fine("quarantine", f"no node of the {len(runs)} runs under way.")


def _check_budgets(opened: Ledger) -> Iterator[Finding]:
    for population in opened.populations():
        if population.overdrawn:
            yield warning(
                f"budget of population {population.name}",
                f"epsilon {up(population.committed_epsilon):g} is committed by the rule that is valid for every choice "
                f"of runs, above the budget of {population.epsilon:g}: older versions composed sampled runs otherwise.",
                "it takes no new run; raise the budget if its users may bear it, or make a new population",
            )
