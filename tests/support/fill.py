"""A ledger with one of everything in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.foreign import Foreign
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.ledger import Ledger, Outcome
from support.ledgers import demand, digest, gaussian, start

ONE = 2**37
"""What a round costs one user here, in units of 2^-44 mu^2: 0.0078."""


def fill(ledger: Ledger, root: Path | None = None) -> None:
    """One of everything: an ended run, one with a void and an open round, tokens, a raised budget."""
    ledger.create_population("people", 4.0, 1e-6, actor="officer")
    ledger.raise_population("people", epsilon=5.0, reason="agreed on 3 May", actor="officer")
    ledger.create_population("others", 1.0, 1e-6, adjacency="add_remove", actor="officer")
    ledger.close_population("others", reason="the study is over", actor="officer")
    _, token = ledger.create_token("page", ("read",), actor="officer")
    ledger.create_token("office", ("read", "admin"), actor="officer")
    ledger.revoke_token(token.id, actor="officer")
    run = start(ledger, 0.8, rounds=3, noise_source="secure")
    run.register_users(np.arange(100, 140, dtype=np.uint64))
    nonces = [bytes([t] * 16).hex() for t in range(3)]
    store = None if root is None else RunFiles(root, run.id)
    if store is not None:
        store.create(bytes(32))
    for t, cohort in enumerate(([0, 1, 2], [2, 3], [4])):
        opened = run.open_round(cohort)
        name = (
            digest(str(t))
            if store is None
            else store.write(t, {"x": torch.full((4,), float(t))}, {"nonces": nonces[: t + 1]})
        )
        loss = PrivacyLoss(mu_squared=0.04 * min(t + 1, 2), sampled=())
        run.commit_round(
            opened,
            Outcome(cohort, loss, {"accuracy": 0.5}, {"nan": 1}, reports=9, nonce=bytes.fromhex(nonces[t])),
            name,
        )
        if store is not None:
            store.promote(name)
    run.finish("done")
    single = start(ledger, 0.2, rounds=3, noise_source="secure", demand=demand(2 * ONE, rounds=3))
    single.commit_round(
        single.open_round([3, 4]),
        Outcome([3, 4], gaussian(0.2), nonce=bytes([7] * 16), charges=np.array([ONE, ONE])),
        digest("1"),
    )
    single.finish("stopped")
    single = start(ledger, 0.2, rounds=3, noise_source="secure", demand=demand(2 * ONE, rounds=3))
    single.commit_round(
        single.open_round([4, 6]),
        Outcome([6], gaussian(0.2), nonce=bytes([8] * 16), charges=np.array([ONE])),
        digest("2"),
    )
    single.finish("stopped")
    ledger.reserve_charge("people", "dp-sgd-1", Foreign(mu=0.1), what="ranker", why="weekly", actor="trainer")
    ledger.commit_charge("people", "dp-sgd-1", actor="trainer")
    ledger.reserve_charge("people", "dp-sgd-2", Foreign(rho=0.001), what="ranker", why="weekly", actor="trainer")
    single = start(ledger, 0.2, rounds=3, noise_source="secure", demand=demand(2 * ONE, rounds=3))
    single.commit_round(
        single.open_round([4, 6]),
        Outcome([4], gaussian(0.2), nonce=bytes([6] * 16), charges=np.array([ONE])),
        digest("3"),
    )
    single.hand_back()
    other = start(ledger, 0.2, rounds=3, noise_source="secure")
    other.void_round(other.open_round([5, 6]), "too few", reports=1, rejects={"shape": 2})
    opened = other.open_round([5, 7])
    other.commit_round(opened, Outcome([5], gaussian(0.2), nonce=bytes([9] * 16)), digest("other"))
    other.register_users(np.arange(139, 150, dtype=np.uint64))
    other.open_round([8, 9])
