"""Runs the code cells of a notebook, in order, in one namespace, without Jupyter."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SHOWN = ("_repr_html_", "_repr_markdown_", "__repr__")


def run_notebook(path: Path) -> tuple[dict[str, Any], list[str]]:
    """(the names that the cells leave, what a notebook shows of each cell's last expression). Raises what they raise.

    The cells are the module `__main__`, as in Jupyter.
    """
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    module, before = ModuleType("__main__"), sys.modules["__main__"]
    sys.modules["__main__"], shown = module, []
    try:
        for number, cell in enumerate(cells):
            tree = ast.parse("".join(cell["source"]), f"{path.name}[{number}]")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"{path.name}[{number}]", "exec"), module.__dict__)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"{path.name}[{number}]", "eval"), module.__dict__)
                show = next(getattr(value, name) for name in SHOWN if hasattr(value, name))
                shown.append(show())
    finally:
        sys.modules["__main__"] = before
    return module.__dict__, shown
