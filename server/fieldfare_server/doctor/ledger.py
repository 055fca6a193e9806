"""The ledger: present, of this version, whole, not rolled back, its clock right, and a coordinator at every run."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import text

from fieldfare.errors import FieldfareError, Refused
from fieldfare_server.deployment.supervisor import under_way
from fieldfare_server.doctor.finding import Finding, fault, fine, warning
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.chain import HeadFile
from fieldfare_server.ledger.holders import is_simulation
from fieldfare_server.run.ending import left_behind

CLOCKS = 5.0
"""Most seconds between the clocks of coordinator and database: a lease lasts 30."""
_PATIENCE = 5.0


def check_ledger(home: StateDirectory) -> Iterator[Finding]:
    """Everything about the ledger of `home`. Opens it without a head file, so that it writes none."""
    try:
        with Ledger.open(home.ledger, patience=_PATIENCE) as opened:
            yield fine("ledger", f"{opened.url} answers; its version is {opened.version}.")
            yield _check_clock(opened)
            yield from _check_chain(opened, home)
            yield from _check_runs(opened)
            for run in left_behind(home, opened):
                yield warning(
                    f"key of run {run}", "the run has ended; key or checkpoints are here.", "fieldfare verify"
                )
            yield from _check_budgets(opened)
    except FieldfareError as error:
        yield report_refusal(
            "ledger", error, "start the database, or name the ledger by --ledger or FIELDFARE_LEDGER_FILE"
        )


def has_only_simulated_populations(home: StateDirectory) -> bool:
    """Whether the ledger of `home` can be read, and has populations, and none of them is of people."""
    try:
        with Ledger.open(home.ledger, patience=_PATIENCE) as opened:
            populations = opened.populations()
    except FieldfareError:
        return False
    return bool(populations) and all(population.simulated for population in populations)


def report_refusal(check: str, error: FieldfareError, mend: str) -> Finding:
    """A refusal by another part of the program, as a finding."""
    if isinstance(error, Refused):
        return fault(check, f"{error.what}: {error.why}", error.nearest or mend)
    return fault(check, str(error), mend)


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
        return warning(check, f"the newest row was written {newest - time.time():.0f} s from now.", mend)
    return fine(check, "agrees with ours.")


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
    report = verify(opened, held=held)
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
            if is_simulation(run.started_by):
                who, mend = "simulation", f"fieldfare simulate --resume {run.id}"
            yield warning(
                f"lease of run {run.id}", f"no {who} holds it at round {run.next_round} of {run.rounds}.", mend
            )
        if run.trust_node_ids:
            yield warning(
                f"identities of run {run.id}",
                "it trusts the ids that nodes claim (trust_node_ids): participation limits rest on that.",
                "authenticate nodes, and plan without trust_node_ids",
            )
    if not any(run.state == "interrupted" for run in runs):
        yield fine("leases", f"{len(runs)} runs under way, all of them held.")


def _check_budgets(opened: Ledger) -> Iterator[Finding]:
    for population in opened.populations():
        if population.overdrawn:
            yield warning(
                f"budget of population {population.name}",
                f"epsilon {population.committed_epsilon:.4g} is committed by the rule that is valid for every choice "
                f"of runs, above the budget of {population.epsilon:g}: older versions composed sampled runs otherwise.",
                "it takes no new run; raise the budget if its users may bear it, or make a new population",
            )
