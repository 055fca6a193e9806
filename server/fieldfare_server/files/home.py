"""Where a deployment keeps its state: the ledger's URL, and the directory of checkpoints and keys.

A budget holds for the runs that are charged to one ledger, so a process must not find another one for having
been started elsewhere: without a name the home is one fixed place of the user's account.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from fieldfare.errors import NotAllowed, NotFound, Unreadable, Unwritable, WrongForm

# A home that no process names, wherever it was started.
BEFORE = Path("runs")
LEDGER_FILE, HEAD_FILE = "ledger.sqlite3", "ledger.head"
_SCRATCH, _NEW = "fieldfare-scratch-", 60.0  # seconds within which whoever makes such a folder locks it

# The one sentence on what may be shared.
SHAREABLE = (
    "Of a run's files only its model (model.safetensors, and what `fieldfare model` writes) may leave the server: the "
    "noise key and the checkpoints of a run under way would give users' sums back."
)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that goes with this process, for keys of runs and sums without noise.

    It deletes those of this account whose processes were killed. Each is locked as long as its process lives.
    """
    made = tempfile.TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True)
    held = os.open(made.name, os.O_RDONLY)
    weakref.finalize(made, os.close, held)
    fcntl.flock(held, fcntl.LOCK_EX)
    for folder in Path(made.name).parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError):  # another account's, or locked
            found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(found)
                if status.st_uid == os.getuid() and status.st_mtime < time.time() - _NEW:
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(found)
    return made


@dataclass(frozen=True)
class StateDirectory:
    """`root` holds one directory for each run; `ledger` is a SQLAlchemy URL."""

    root: Path
    ledger: str
    lease_patience: float = 60.0  # seconds to wait for a dead coordinator's lease before a resume is refused
    # Whether somebody said where the ledger is. The default is one account's on one machine, or one container's.
    named: bool = True

    @classmethod
    def of(cls, root: str | Path | None = None, ledger: str | None = None) -> StateDirectory:
        """Return what is given, else FIELDFARE_HOME and FIELDFARE_LEDGER, else the account's data directory
        with SQLite.

        FIELDFARE_LEDGER_FILE names a file that holds the URL, which keeps a password out of the environment.

        Raises:
            BadInput: the URL's file cannot be read; the account has no directory; or nothing is named and
                `./runs` holds a ledger: what was spent there must not be forgotten.
        """
        if not isinstance(root, str | Path | None):
            raise WrongForm(f"home = {root!r}", "is not a directory's path.", "'/srv/fieldfare'")
        chosen = root or os.environ.get("FIELDFARE_HOME")
        path = Path(chosen).expanduser().absolute() if chosen else _of_account()
        url = ledger or os.environ.get("FIELDFARE_LEDGER")
        secret = os.environ.get("FIELDFARE_LEDGER_FILE")
        if url is None and secret:
            try:
                url = Path(secret).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not text"
                raise Unreadable(f"FIELDFARE_LEDGER_FILE = {secret!r}", f"cannot be read: {why}.") from None
        return cls(path, url or f"sqlite:///{path / LEDGER_FILE}", named=bool(chosen or url))

    @property
    def head_file(self) -> Path:
        """Where the coordinator keeps the journal's head, so that it notices a ledger that was rolled back."""
        return self.root / HEAD_FILE

    @property
    def service_head_file(self) -> Path:
        """Where the API keeps its own head, because a coordinator may share the home. No run has this name."""
        return self.root / ".api" / HEAD_FILE

    @property
    def head_files(self) -> tuple[Path, Path]:
        """Both of them, the coordinator's first."""
        return self.head_file, self.service_head_file

    def require_named(self, population: str, simulated: bool) -> None:
        """Refuse to make a budget of real people in a home that nobody named. Raises `BadInput`.

        A container's account is new at every start, and each account of a machine has its own directory.
        """
        if not (simulated or self.named):
            raise NotAllowed(
                f"population {population!r}",
                f"nobody named the home, so it is this account's, {self.root}: elsewhere the same people would get the "
                "budget again.",
                f"FIELDFARE_HOME={self.root} (in Python home=) if it lasts as long as the people, or FIELDFARE_LEDGER, "
                "a database's URL",
            )

    def prepare(self) -> None:
        """Create the directory, readable only by its owner: it will hold noise keys. Raises `BadInput`."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            why, at = f"cannot be made: {error.strerror}.", Path(error.filename or self.root)
            if isinstance(error, FileExistsError):
                why = f"{at} is {'a link to a place that is not there' if at.is_symlink() else 'no directory'}."
            near = "--home or --out, a directory that can be written"
            raise Unwritable(f"home {str(self.root)!r}", why, near) from None


def _of_account() -> Path:
    """Return the default home. Raises `BadInput` where there is none, or where `./runs` was one."""
    try:
        path = user_data_path("fieldfare", appauthor=False)
    except RuntimeError:
        path = Path("~")
    if not path.is_absolute():  # no HOME, and no entry of this user, as in many containers
        raise NotFound("home", "this user's account has no directory.", "FIELDFARE_HOME=DIR, or --home DIR")
    before = BEFORE.absolute()
    if before.resolve() != path.resolve() and any((before / name).exists() for name in (LEDGER_FILE, HEAD_FILE)):
        bring = f"or `mv {before} {path}`" if not path.exists() else "or another name for it, if it was left for good"
        raise NotAllowed(
            "home",
            f"{before} holds a ledger, once the default; now it is {path}, and what was spent must not be forgotten.",
            f"`export FIELDFARE_HOME={before}` to stay with it, {bring}",
        )
    return path
