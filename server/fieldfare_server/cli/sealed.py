"""Sealed trials in this process: charged before the first, and nothing but the best of a secret number is ever shown.

`fieldfare.accounting.sealed` has the theorem, and this is what it asks for. All users are charged for the whole
search, durably, and nothing gives that back. Each trial draws its setting, runs in a child of this process,
which begins at the same memory as every other, writes to no file and says nothing, and hands over its score and
its model. All trials are made, the first K of them count, the best is kept. A trial that fails, however it
ends, is the worst; one whose users all fail goes on. **Not hidden** from whoever watches this machine: how long a
trial takes, its memory, and that a row ended its process.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import resource
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fieldfare.accounting.filter import gauge
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.sealed import draw
from fieldfare.atomic import replace_file
from fieldfare.cost import Cost
from fieldfare.errors import ChargedInVain, Unsupported
from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare.text import up
from fieldfare_server.cli import sessions
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.output import print_progress
from fieldfare_server.cli.progress import check_first, local_grid
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.admission import admit, admit_charge
from fieldfare_server.planning.tuning import Tried, Tuned, Tuning, behind
from fieldfare_server.run.signal import require_signal

Trials = Sequence[tuple[Plan, Cost]]


def require_sealed(ledger: Ledger, tuning: Tuning) -> tuple[Trials, Foreign]:
    """Return `Tuning.sealed`: its trials, and what all of them cost together.

    Raises:
        BadInput: trials cannot be sealed on this machine or with this population; names what would do.
        BudgetRefused: the budget does not hold the search.
    """
    from fieldfare_client import forked
    from fieldfare_client.app import user_names  # imports PyTorch

    trials, loss = tuning.sealed()
    if why := forked.why_not():
        raise Unsupported("sealed trials here", f"each is a process of its own, and {why}.", "a fresh process on Linux")
    for plan, cost in trials:
        admit(plan, None, ledger, user_names(plan.task_reference))
        require_signal(cost)
    admit_charge(tuning.plan.privacy.population, loss, ledger)
    return trials, loss


def search(home: StateDirectory, tuning: Tuning, *, accept_delta: bool = False, quiet: bool = False) -> Tuned:
    """Charge all users for a sealed search, make it, and write the best trial's model.

    Raises:
        BadInput, BudgetRefused: as `require_sealed`; nothing is charged.
        ChargedInVain: Ctrl-C, or no trial that counts has a model. The search stays charged.
    """
    for plan in {plan.task_reference: plan for plan in reversed(tuning.finals)}.values():  # the first of each task
        check_first(plan, accept_delta=accept_delta)
    home.prepare()
    key, privacy = f"sealed-{secrets.token_hex(6)}", tuning.plan.privacy
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        trials, loss = require_sealed(ledger, tuning)
        what = f"a search over {', '.join(tuning.settings[0])}"
        why = f"{len(trials)} sealed trials, and the best of them"
        ledger.reserve_charge(privacy.population, key, loss, what=what, why=why, actor=actor())
        # Spent before anything is trained: what is only reserved could be given back.
        charge = ledger.commit_charge(privacy.population, key, actor=actor())
    epsilon = gauge(charge.price.mu_squared, privacy.delta, charge.price.leak)
    if not quiet:
        print_progress(f"{key}: all users are charged epsilon {up(epsilon):g}. Nothing is shown before the end.")
    task = load_task(tuning.plan.task_reference)
    best = _best(trials, task.least_is_best)
    if best is None:
        raise ChargedInVain(
            f"{key}: it was stopped, or no trial that counts has a model. It stays charged, and nothing of it is kept. "
            "The same again is another search, charged anew."
        )
    at, score, model = best
    path = home.root / key / "model.safetensors"
    path.parent.mkdir(mode=0o700)
    replace_file(path, model, 0o644)
    declared = f"public data, of {len(trials)} sealed trials charged to all users together. {task.held_out}"
    tried = (Tried(tuning.settings[at], key, epsilon, score),)
    return Tuned(trials[at][0], tried, task.score_name, declared, str(home.root), str(path))


def _best(trials: Trials, least_is_best: bool) -> tuple[int, float | None, bytes] | None:
    """Return (its setting, its score, its model) of the best of K trials; None without one, and after Ctrl-C."""
    from fieldfare_client import forked  # imports PyTorch

    counted, best = draw(len(trials)), None
    try:
        # Always as many trials as there are settings, so that neither their number nor the time tells K.
        for number in range(len(trials)):
            at, told = secrets.randbelow(len(trials)), None
            with contextlib.suppress(OSError):
                told = forked.ask_once(partial(_train, *trials[at]))
            if told is not None and number < counted:
                # Ties are broken by coins.
                rank = behind(told["score"], least_is_best), secrets.randbits(64)
                if best is None or rank < best[0]:
                    best = rank, (at, told["score"], told["model"])
    except KeyboardInterrupt:
        return None  # and K and scores end with this frame, which an error that goes on would show
    return None if best is None else (best[1][0], best[1][1], base64.b64decode(best[1][2]))


def _train(plan: Plan, cost: Cost, tell: Callable[[dict[str, Any]], None]) -> None:
    """Train one trial in a child that says nothing, and tell its score and its model, as base64 of safetensors."""
    from safetensors.torch import save

    from fieldfare_server.run.rehearsal import Rehearsal
    from fieldfare_server.run.round.strategy import FieldfareStrategy  # imports Flower

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its child
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
    logging.disable()
    with sessions()(plan, cost, Rehearsal(), None, secrets.token_bytes(32)) as session:
        grid = local_grid(plan, 1)
        grid.tells_faults = False  # where all users fail it releases noise: to end there would be no post-processing
        FieldfareStrategy(session).take_to_end(grid)
    model = save({name: value.contiguous() for name, value in session.model.tensors(session.params).items()})
    score = session.released.score.get(session.model.score_name)
    tell({"score": score, "model": base64.b64encode(model).decode()})
