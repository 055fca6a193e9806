"""What nodes with a budget of their own are told of a run: its terms, signed with the key of the journal's head.

They are made once a session. `fieldfare.signed_terms` has the format; what a node does with them is in
`fieldfare_client.budget`.
"""

from __future__ import annotations

import json
import logging

from flwr.app import ConfigRecord

from fieldfare.cost import Cost
from fieldfare.plan import Plan
from fieldfare.signed_terms import RunTerms, SignedTerms
from fieldfare_flower.messages import write_terms
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.strategies import StoredStrategy
from fieldfare_server.ledger import Ledger, RunHandle
from fieldfare_server.ledger.chain import HeadFile

log = logging.getLogger("fieldfare.session")

# Terms that are longer are not sent: each instruction would carry them.
MOST_BYTES = 1 << 18


def terms_record(
    home: StateDirectory, ledger: Ledger, handle: RunHandle, plan: Plan, cost: Cost
) -> dict[str, ConfigRecord]:
    """Return the record, by its name, of a run's terms; {} where nothing is signed yet, or they are too long."""
    head, name = ledger.signed_head(), plan.privacy.population
    if head is None:
        return {}
    decided = StoredStrategy(home.root, handle.id, cost.strategy, cost.loss).decided if cost.strategy else {}
    terms = RunTerms(
        ledger=head.ledger,
        row=head.count,
        population=name,
        identity=ledger.population_identity(name),
        spent=ledger.population(name).spent,
        run=handle.id,
        plan=json.loads(plan.run_json(cost.resolution)),
        price=cost.stored_price.to_json(),
        decided=decided,
        individual=handle.individual,
    )
    if len(terms.lasting) > MOST_BYTES:
        log.warning("nodes with a budget of their own refuse this run: its mechanism takes too many bytes to describe")
        return {}
    return write_terms(SignedTerms.of(terms, HeadFile(home.head_file).key(), ledger.head_key_lines().values()))
