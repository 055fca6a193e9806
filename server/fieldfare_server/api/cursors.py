"""Pages of lists: where a page begins, and what is on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from fieldfare_server.api.population_schemas import Population
from fieldfare_server.api.refusal import ProblemError
from fieldfare_server.api.schemas import Page

# Of populations: by name, or the ones nearest to their limits first.
Order = Literal["name", "nearness"]


def part(
    names: Sequence[str], read: Callable[[str], Population], order: Order, cursor: str | None, limit: int
) -> Page[Population]:
    """Return the populations `names`, which are sorted, after `cursor`: at most `limit` of them.

    By name the cursor is the last name of the previous page; by nearness it is that population's share and
    name, so that nobody is passed over who was behind it, whatever was charged meanwhile.
    """
    if order == "name":
        after = [name for name in names if cursor is None or name > cursor]
        items = tuple(read(name) for name in after[:limit])
        return Page[Population](items=items, next=items[-1].name if len(after) > limit else None)
    begin = None if cursor is None else _place(cursor)
    rest = [each for each in sorted(map(read, names), key=_rank) if begin is None or _rank(each) > begin]
    page = rest[:limit]
    last = f"{page[-1].committed_share!r}:{page[-1].name}" if len(rest) > limit else None
    return Page[Population](items=tuple(page), next=last)


def _rank(population: Population) -> tuple[float, str]:
    return -population.committed_share, population.name


def _place(cursor: str) -> tuple[float, str]:
    share, _, name = cursor.partition(":")
    try:
        if (number := float(share)) >= 0:  # not NaN, after which nothing comes
            return -number, name
    except ValueError:
        pass
    raise _unknown()


def parse_cursor(cursor: str | None) -> int | None:
    """Return the number that a cursor of runs, rounds or audit rows is. Raises `ProblemError` 400 for another text."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise _unknown()
    return int(cursor)


def format_cursor(cursor: int | None) -> str | None:
    """Return the reverse of `parse_cursor`."""
    return None if cursor is None else str(cursor)


def _unknown() -> ProblemError:
    return ProblemError(400, "bad-cursor", "this cursor is not one that this service gave.", nearest="no cursor")
