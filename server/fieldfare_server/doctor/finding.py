"""The result of one check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "warning", "fault", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What one check found. Never holds a secret.

    Args:
        check: what was checked.
        said: what was found.
        mend: what to do about it; "" where there is nothing to do.
    """

    check: str
    state: State
    said: str
    mend: str = ""

    def to_json(self) -> dict[str, Any]:
        """The finding for `--json`."""
        return asdict(self)


def fine(check: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", said)


def warning(check: str, said: str, mend: str) -> Finding:
    """Works today, but not for ever, or not for everyone."""
    return Finding(check, "warning", said, mend)


def fault(check: str, said: str, mend: str) -> Finding:
    """Does not work, or does not protect."""
    return Finding(check, "fault", said, mend)


def skipped(check: str, said: str) -> Finding:
    """Not checked, and why."""
    return Finding(check, "skipped", said)
