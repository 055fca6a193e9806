"""`fieldfare supervise`: resume runs whose coordinator died."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import FieldfareError
from fieldfare_server.cli.command import on_home
from fieldfare_server.cli.options import trusted
from fieldfare_server.cli.waiting import retry
from fieldfare_server.deployment.submit import submit_and_follow
from fieldfare_server.deployment.supervisor import Supervisor, under_way
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RunView
from fieldfare_server.planning.questions import task_of_nodes
from fieldfare_server.run.ending import destroy

log = logging.getLogger("fieldfare.supervisor")


@on_home
def supervise(
    directory: StateDirectory,
    superlink: Annotated[str, typer.Option(help="host:port of the SuperLink")] = "127.0.0.1:8000",
    root_certificates: Annotated[Path | None, typer.Option(help="the federation's ca.crt")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="no TLS: for a quick look only")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="seconds between two reads of the ledger")] = 2.0,
) -> None:
    """Watch the ledger for runs without a coordinator and submit them to the federation again, until stopped."""
    certificates = trusted("supervise", root_certificates, insecure)

    def resume(run: RunView) -> None:
        terms = {"task": task_of_nodes(run.plan), "resume": run.id, "root_certificates": certificates, "timeout": 60.0}
        submit_and_follow(directory, superlink, log.info, run_id=run.id, detach=True, **terms)

    supervisor, held = Supervisor(resume), directory.head_file
    while True:
        with retry(lambda: Ledger.open(directory.ledger, head_file=held), patience=float("inf")) as opened:
            try:
                while True:
                    for run in opened.expire_reservations():
                        log.warning("run %s: no coordinator held it, and its reservation expired", run)
                        destroy(directory, opened, run, "supervisor")
                    # A run of someone's own Flower app is resumed by that app.
                    supervisor.look([run for run in under_way(opened) if task_of_nodes(run.plan)])
                    time.sleep(every)
            except FieldfareError as error:
                # The database was away for longer than the ledger waits: open it again.
                log.warning("the ledger cannot be read: %s", error)
        time.sleep(every)  # also where it can be opened, and refuses what is asked of it
