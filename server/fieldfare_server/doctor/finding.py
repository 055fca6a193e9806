"""The result of one check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

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

    def to_json(self) -> dict[str, object]:
        """Return the finding for `--json`."""
        return asdict(self)


def guard(check: str, findings: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Run `findings()`, and return a fault instead of an exception: a doctor that dies of what it should
    report is no use.

    The exception's text is left out, which may hold a password; an `OSError` says what it is about.
    """
    try:
        yield from findings()
    except Exception as error:
        detail = f" ({error.strerror}: {error.filename})" if isinstance(error, OSError) and error.strerror else ""
        yield fault(
            check,
            f"cannot be checked: {type(error).__name__}{detail}.",
            "run the doctor as the user of the service, on its own directories; else report this as a bug",
        )


def fine(check: str, said: str) -> Finding:
    """Report that there is nothing to do."""
    return Finding(check, "ok", said)


def warning(check: str, said: str, mend: str) -> Finding:
    """Report what works today, but not for ever, or not for everyone."""
    return Finding(check, "warning", said, mend)


def fault(check: str, said: str, mend: str) -> Finding:
    """Report what does not work, or does not protect."""
    return Finding(check, "fault", said, mend)


def skipped(check: str, said: str) -> Finding:
    """Report what was not checked, and why."""
    return Finding(check, "skipped", said)
