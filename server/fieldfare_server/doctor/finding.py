"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "warning", "fault", "skipped"]


@dataclass(frozen=True)
class Finding:
    """`said`: what was found; `mend`: what to do about it ("" where nothing is to be done). Neither holds a secret."""

    check: str
    state: State
    said: str
    mend: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def fine(check: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", said)


def warning(check: str, said: str, mend: str) -> Finding:
    """Works today, and will not for ever, or not for everybody."""
    return Finding(check, "warning", said, mend)


def fault(check: str, said: str, mend: str) -> Finding:
    """Does not work, or does not protect."""
    return Finding(check, "fault", said, mend)


def skipped(check: str, said: str) -> Finding:
    """Not looked at, and why."""
    return Finding(check, "skipped", said)
