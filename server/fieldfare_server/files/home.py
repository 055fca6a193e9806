"""Where a deployment keeps its state: the ledger's URL, and the directory of checkpoints and keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fieldfare.errors import BadInput


@dataclass(frozen=True)
class StateDirectory:
    """`root` holds one directory for each run; `ledger` is a SQLAlchemy URL."""

    root: Path
    ledger: str
    lease_patience: float = 60.0
    """Seconds to wait for a dead coordinator's lease before a resume is refused."""

    @classmethod
    def of(cls, root: str | Path | None = None, ledger: str | None = None, below: Path | None = None) -> StateDirectory:
        """Explicit values, else FIELDFARE_HOME and FIELDFARE_LEDGER, else ./runs with SQLite in it. Raises `BadInput`.

        FIELDFARE_LEDGER_FILE names a file that holds the URL, which keeps a password out of the environment.
        below: where ./runs is made instead of in the current directory.
        """
        default = (below or Path()) / "runs"
        path = Path(root or os.environ.get("FIELDFARE_HOME") or default).expanduser().absolute()
        url = ledger or os.environ.get("FIELDFARE_LEDGER")
        secret = os.environ.get("FIELDFARE_LEDGER_FILE")
        if url is None and secret:
            try:
                url = Path(secret).read_text().strip()
            except OSError as error:
                raise BadInput(f"FIELDFARE_LEDGER_FILE = {secret!r}", f"cannot be read: {error.strerror}.") from None
        return cls(path, url or f"sqlite:///{path / 'ledger.sqlite3'}")

    @property
    def head_file(self) -> Path:
        """Where the coordinator keeps the journal's head, so that it notices a ledger that was rolled back."""
        return self.root / "ledger.head"

    def prepare(self) -> None:
        """Create the directory, readable only by its owner: it will hold noise keys. Raises `BadInput`."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"home {str(self.root)!r}",
                f"cannot be made: {error.strerror}.",
                "--home, a directory that can be written",
            ) from None
