"""Whether the places that docs/theorems.md names are still as they were when somebody read them.

    python docs/hooks/theorems.py       # after reading: writes the digests of the sources as they are now

MkDocs calls `on_page_markdown` for every page. An entry whose source has changed shows as outdated.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/theorems.md"
ENTRY = re.compile(r"^(\| .*? \| `)([\w.]+):([\w.]+)(` \| .* \| `)([0-9a-f]{8}|new)(` \|)$", re.MULTILINE)
"""A row of the table: the module and the function or class of its place, and the digest as it was read."""


def digest_of(module: str, name: str) -> str:
    """The first 8 hex digits of SHA-256 of a function's or class's source, with its module's docstring.

    Raises LookupError where there is no such place.
    """
    path = ROOT / "shared" / (module.replace(".", "/") + ".py")
    if not path.is_file():
        path = ROOT / "server" / (module.replace(".", "/") + ".py")
    if not path.is_file():
        raise LookupError(f"no module {module}")
    text = path.read_text(encoding="utf-8")
    tree: Any = ast.parse(text)
    parts = [ast.get_docstring(tree, clean=False) or ""]
    for part in name.split("."):
        kinds = ast.FunctionDef | ast.ClassDef
        tree = next((node for node in tree.body if isinstance(node, kinds) and node.name == part), None)
        if tree is None:
            raise LookupError(f"{module} has no {name}")
    parts += [*map(ast.unparse, tree.decorator_list), ast.get_source_segment(text, tree) or ""]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def outdated(page: str) -> list[str]:
    """The places of a page whose sources have changed since they were read."""
    rows = ENTRY.findall(page)
    return [f"{module}:{name}" for _, module, name, _, read, _ in rows if digest_of(module, name) != read]


def renewed(page: str) -> str:
    """The page with the digests of the sources as they are now."""
    return ENTRY.sub(lambda row: f"{row[1]}{row[2]}:{row[3]}{row[4]}{digest_of(row[2], row[3])}{row[6]}", page)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, with "outdated" in the place of a digest that is not that of the source."""

    def shown(row: re.Match[str]) -> str:
        if digest_of(row[2], row[3]) == row[5]:
            return row[0]
        return f"{row[1]}{row[2]}:{row[3]}{row[4].removesuffix('`')}**outdated** |"

    return ENTRY.sub(shown, markdown) if page.file.src_path == PAGE.name else markdown


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
