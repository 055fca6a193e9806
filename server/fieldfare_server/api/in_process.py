"""The budget service of a ledger on this machine, in this process: the same answers, without HTTP and its
framework.

A command that reads asks it where no `--url` is named. Every answer becomes the bytes that a service would
send, so a command prints the same from both.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pydantic import BaseModel

from fieldfare.errors import LedgerError, Refused
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.refusal import ProblemError, described
from fieldfare_server.api.service import Service, ServiceError, ServiceRequest, Written, as_json
from fieldfare_server.ledger import Ledger


class InProcessClient(Service):
    """Answers about the ledger `opened`, which it closes.

    root: the state directory, from which runs' stored strategies are read.
    """

    def __init__(self, opened: Ledger, root: Path | None = None) -> None:
        self.where = opened.url
        self._ledger, self._answers = opened, Answers(opened, root)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _send(self, asked: ServiceRequest) -> bytes:
        try:
            answer = self._answer(asked.path.removeprefix("/v1/").split("/"), dict(asked.parameters or {}))
        except LedgerError:
            raise
        except (ProblemError, Refused) as error:
            raise ServiceError.of(described(error, asked.path)) from None
        if isinstance(answer, BaseModel):
            return answer.model_dump_json().encode()
        return answer.encode() if isinstance(answer, str) else as_json(answer)

    def _answer(self, path: list[str], given: dict[str, str]) -> object:
        """Return what the route of `path` answers, as far as the command line asks."""
        answers, cursor, limit = self._answers, given.get("cursor"), int(given.get("limit", "50"))
        match path:
            case ["populations"]:
                nearest = given.get("order") == "nearness"
                search = given.get("search", "")
                return answers.populations(cursor, limit, order="nearness" if nearest else "name", search=search)
            case ["populations", name]:
                return answers.population(name)
            case ["populations", name, "history"]:
                return answers.history(name, int(given["points"]))
            case ["populations", name, "charges"]:
                return [charge.model_dump(mode="json") for charge in answers.charges(name)]
            case ["runs"]:
                return answers.runs(cursor, limit, given.get("population"))
            case ["runs", run]:
                return answers.run(run)
            case ["runs", run, "report"]:
                return answers.report(run, cast("Written", given["format"]))
        raise ServiceError(self.where, f"{'/'.join(path)} names nothing here; all else is asked of a running service.")
