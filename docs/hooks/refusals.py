"""What Fieldfare refuses, read from its source: the table of codes on docs/errors.md, and every sentence in one file.

    python docs/hooks/refusals.py       # `make words` writes tests/docs/refusals.txt

MkDocs calls `on_page_markdown` for every page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SNAPSHOT = ROOT / "tests/docs/refusals.txt"
PACKAGES = ("shared/fieldfare", "shared/fieldfare_flower", "server/fieldfare_server", "client/fieldfare_client")
PLACE = "<!-- every code -->"
BASE = "FieldfareError"
EXIT = {"BudgetRefused": 3, "Interrupted": 4, "ChargedInVain": 5}
BAD_INPUT = 2


class Said(NamedTuple):
    """One refusal in the source: its code, or None for that of its class; its class; what it says."""

    code: str | None
    kind: str
    text: str


@cache
def sources() -> list[ast.Module]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return [ast.parse(path.read_text()) for path in paths]


@cache
def classes() -> dict[str, tuple[str, str]]:
    """Every class of errors: the class that it derives from, and the first line of its docstring."""
    every: dict[str, tuple[str, str]] = {}
    found = [
        (node.name, [ast.unparse(base) for base in node.bases], ast.get_docstring(node) or "")
        for module in sources()
        for node in statements(module.body)
        if isinstance(node, ast.ClassDef)
    ]
    known = {BASE}
    while True:
        more = [one for one in found if one[0] not in known and known & set(one[1])]
        if not more:
            return every
        for name, bases, text in more:
            known.add(name)
            every[name] = (next(base for base in bases if base in known), text.split("\n")[0])


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of a block and of the blocks in it."""
    for statement in body:
        yield statement
        for block in _blocks(statement):
            yield from statements(block)


def code_of(kind: str) -> str:
    """The code of a class, as `FieldfareError` makes it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()


def exit_of(kind: str, known: dict[str, tuple[str, str]]) -> int:
    """The exit code of an error of this class."""
    while kind in known:
        if kind in EXIT:
            return EXIT[kind]
        kind = known[kind][0]
    return BAD_INPUT


Texts = dict[str, str]
"""What local names say, of those that are text wherever they are read."""


def words(node: ast.expr, texts: Texts) -> str:
    """What an expression says, with {...} for what differs from time to time."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part, texts) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return words(node.left, texts) + words(node.right, texts)
    if isinstance(node, ast.FormattedValue):
        return words(node.value, texts)
    if isinstance(node, ast.Name) and node.id in texts:
        return texts[node.id]
    return "{" + ast.unparse(node) + "}"


def calls(body: list[ast.stmt], texts: Texts) -> Iterator[tuple[ast.Call, Texts]]:
    """Every call in a block, with what the names say that were given a text before it, in this block or one around."""
    for statement in body:
        yield from ((node, texts) for node in _outside(statement) if isinstance(node, ast.Call))
        stored = _stored(statement)
        kept = {name: text for name, text in texts.items() if name not in stored}
        for block in _blocks(statement):  # which of them ran before is not known: what any of them stores says nothing
            yield from calls(block, kept)
        texts = kept | dict(_given(statement, texts))


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return blocks + [each.body for each in (*getattr(statement, "handlers", []), *getattr(statement, "cases", []))]


@cache
def _outside(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement that lie in no block of it."""
    passed: set[ast.AST] = {each for block in _blocks(statement) for each in block}
    found: list[ast.AST] = [statement]
    for node in found:  # which grows
        found += (
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.expr_context) and child not in passed
        )
    return found


@cache
def _stored(statement: ast.stmt) -> frozenset[str]:
    """The names that a statement gives a value, those in its blocks too."""
    here = {node.id for node in _outside(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    here |= {node.arg for node in _outside(statement) if isinstance(node, ast.arg)}
    return frozenset(here).union(*(_stored(each) for block in _blocks(statement) for each in block))


def _given(statement: ast.stmt, texts: Texts) -> Iterator[tuple[str, str]]:
    if isinstance(statement, ast.Assign):
        target, value = statement.targets[0], statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))  # of a starred one, what stands before it
        for name, text in pairs:
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant | ast.JoinedStr | ast.BinOp):
                yield name.id, words(text, texts)


@cache
def said() -> list[Said]:
    """Every refusal that the source raises or makes, sorted."""
    known = classes()
    every = []
    for module in sources():
        for node, texts in calls(module.body, {}):
            if not isinstance(node.func, ast.Name) or node.func.id not in known:
                continue
            if not node.args or any(isinstance(each, ast.Starred) for each in node.args):
                continue
            code = next(
                (
                    ast.literal_eval(each.value)
                    for each in node.keywords
                    if each.arg == "code" and isinstance(each.value, ast.Constant)
                ),
                None,
            )
            what, *rest = [words(each, texts) for each in node.args]
            text = f"{what}: {rest[0]}" if rest else what
            text += f" Nearest allowed: {rest[1]}." if len(rest) > 1 and rest[1] else ""
            every.append(Said(code, node.func.id, " ".join(text.split())))
    return sorted(every, key=lambda each: (each.code or code_of(each.kind), each.text))


def snapshot() -> str:
    """Every sentence with which something is refused, a line each under its code."""
    return "".join(f"{each.code or code_of(each.kind)}: {each.text}\n" for each in said())


def markdown() -> str:
    """The table of codes: the classes first, then the refusals that have a code of their own."""
    known = classes()
    rows = ["| code | exit code | meaning |", "|---|---|---|"]
    for kind, (_, text) in sorted(known.items()):
        rows.append(f"| `{code_of(kind)}` | {exit_of(kind, known)} | {text} |")
    own: dict[str, Said] = {}
    for each in said():
        if each.code is not None:
            own.setdefault(each.code, each)
    for code, each in own.items():
        rows.append(f"| `{code}` | {exit_of(each.kind, known)} | {_cell(each.text)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return re.sub(r"\{[^{}]*\}", "...", text).replace("|", "\\|").replace("<", "&lt;")


def on_page_markdown(text: str, **_: Any) -> str:
    """The page's Markdown, with the table in its place."""
    return text.replace(PLACE, markdown()) if PLACE in text else text


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())
