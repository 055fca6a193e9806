"""The `fieldfare` command: one file a command. In the server only this package may import `fieldfare_client`."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from fieldfare.errors import NotInstalled
from fieldfare_flower import QUIET

if TYPE_CHECKING:
    from fieldfare_server.run.session import Session

for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)

# What numpy and torch read when they are imported.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LEFT_OUT = dict.fromkeys(("torch", "flwr", "matplotlib", "sklearn", "pyarrow"), "server,client")
# Modules that smaller installations do not have, and the extras that bring them.
LEFT_OUT["psycopg"] = "postgres"
# Commands that may use every core, as torch decides. The demo's models are too small to share: its threads would wait
# for each other by spinning, which takes 2 times the processor on a quiet machine and 5 times at a load of 6.
TRAINING = ("simulate", "compare", "run")


@contextmanager
def importing() -> Iterator[None]:
    """Look for no garbage meanwhile: imports make many objects and none, and looking takes a tenth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def sessions() -> type[Session]:
    """Return the class of sessions. Imports Flower, which no help needs."""
    with importing():
        from fieldfare_server.run.session import Session
    return Session


def ready_streams() -> None:
    """Open what the caller closed of standard input, output and error; let no character fail to be printed."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Its number is the lowest that is free: otherwise the ledger's file or a socket would get it.
            os.set_inheritable(number := os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error is


def end_like_ctrl_c() -> None:
    """Let SIGTERM, and the SIGHUP of a terminal that closes, end this process as Ctrl-C does.

    SIGHUP becomes SIGTERM: a service handles that in its own way.
    """
    for number, ends in (
        (signal.SIGTERM, signal.default_int_handler),
        (signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM)),
    ):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, ends)
            os.register_at_fork(after_in_child=partial(signal.signal, number, signal.SIG_DFL))


def main() -> None:
    """Run the program: the console's entry point."""
    ready_streams()
    end_like_ctrl_c()
    try:
        from fieldfare_server.cli import application
        from fieldfare_server.cli.output import fail, outlive_readers, refusals, written

        outlive_readers()
        command, as_json = application.called(sys.argv[1:]), "--json" in sys.argv
        with refusals(as_json):
            application.require_said(sys.argv[1:])
            application.require_servable(sys.argv[1:])
            if command == "forecast" and command not in application.added():
                from fieldfare.task import ADD_ON

                raise NotInstalled("`fieldfare forecast`", "is not installed here.", ADD_ON)
            if command not in TRAINING:
                # Unless told otherwise: starting a thread for each core takes longer than what these commands compute.
                for name in THREADS:
                    os.environ.setdefault(name, "1")
            # A program that is installed does not look for modules (of tasks) where it is started; `python -m` does.
            sys.path.append("")
            with importing():
                known = command in application.COMMANDS | application.GROUPS or command in application.added()
                program = application.assemble(command) if known else application.overview()
            try:
                program()
            finally:
                written()
    except KeyboardInterrupt:  # before there was anything to say it with
        sys.exit(130)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in LEFT_OUT:
            raise
        what, why = f"`fieldfare {command}`", f"needs {missing}, which is not installed here."
        fail(NotInstalled(what, why, f"pip install 'fieldfare[{LEFT_OUT[missing]}]'"), as_json)
