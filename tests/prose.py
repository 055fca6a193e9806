"""Print what the text in the code is, a line a room: docstrings, comments, opening verbs, arguments, long lines.

`make prose` prints the table. `python tests/prose.py --without verb server/run` lists the functions of a room whose
docstring opens with no verb (or lacks `docstring`, `args`; `long` lists long lines). `python tests/prose.py --draw 60`
draws sentences of docstrings, refusals and pages at random, to be read aloud by somebody who did not write them.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shared/fieldfare", "shared/fieldfare_flower", "server/fieldfare_server", "client/fieldfare_client")
LONGEST = 110
"""Characters of a line of a paragraph. A text of one line may be as wide as code."""
CODE = 120
"""Characters of a line of code, as in pyproject.toml."""
PROPERTIES = ("property", "cached_property", "computed_field")
"""A property is a thing, so a noun describes it: it needs no verb."""
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
    accept accumulate add admit adopt allow answer append apply approve arm ask assign attack audit
    average await begin bind bootstrap bound break bring build calibrate call cancel cap carry change
    charge check choose clear clip close collect combine commit compare compose compress compute
    concatenate connect constrain continue convert convolve copy count cover create cut deal decay decide
    declare decode decrypt delete derive describe destroy do download draw drop encode encrypt end enrol
    enter estimate evaluate execute export factor fetch fill filter find finish flush fold follow forget
    fork format forward free gather generate get give go group grow guard hand hash have hold import
    include insert install integrate interpolate invert join judge keep key label learn leave let list
    load lock log look lower make map mark mask match measure merge mix move multiply name note open order
    overwrite pack pad parse pass pause pay permit pick place plan play pledge poll post prepare price
    print privatise probe project propose prove publish pull push put queue raise read rebuild receive
    recompute reconstruct record reduce refuse register release remember remove rename render renew
    replace replay reply report require reserve reset resolve restore resume retrieve return reuse revoke
    rotate round run sample save say scale scan score search see seed select send separate serve set
    settle shift show shrink sign simulate skip sleep solve sort spend split stamp start state step stop
    store stream submit subtract sum swap take tell test train translate try turn undo unpack update
    upgrade use validate verify wait walk warn watch weigh withdraw wrap write yield zero
        """,
    )
)


def files(within: str = "") -> Iterator[Path]:
    """Yield the product's Python files below `within`, a part of a path such as `server/fieldfare_server/run`."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if within in str(path.relative_to(ROOT)):
                yield path


def room_of(path: Path) -> str:
    """Return the room of a file: its package, and the folder in it where there is one."""
    package = next(package for package in PACKAGES if path.is_relative_to(ROOT / package))
    inside = path.relative_to(ROOT / package).parts
    return Path(package).name + (f".{inside[0]}" if len(inside) > 1 else "")


def comments(text: str) -> list[tuple[int, str]]:
    """Return line number and text of each comment but those that speak to tools (`type: ignore`, `noqa`)."""
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    tools = ("# type:", "# noqa", "#!", "# pragma", "# ruff")
    return [(t.start[0], t.string) for t in found if t.type == tokenize.COMMENT and not t.string.startswith(tools)]


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield docstrings, and the strings that stand alone below an attribute and describe it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def opens_with_verb(text: str) -> bool:
    """Return whether a docstring's first word is a verb of the list; "sum of", "price of" are nouns."""
    first, second, *_ = [*re.split(r"\W+", text, maxsplit=2), "", ""]
    return first.lower() in VERBS and second != "of"


def lacks(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return what a function's text lacks of `docstring`, `verb` and `args`.

    Private functions and those with fewer than two parameters need no list of arguments; properties need no verb.
    """
    text = ast.get_docstring(function)
    if not text:
        return {"docstring"}
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    named = [a for a in arguments if a.arg not in ("self", "cls")]
    decorators = {ast.unparse(d).split(".")[-1].split("(")[0] for d in function.decorator_list}
    missing = set()
    if not decorators & set(PROPERTIES) and not opens_with_verb(text):
        missing.add("verb")
    if not function.name.startswith("_") and len(named) >= 2 and "Args:" not in text:
        missing.add("args")
    return missing


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods, but not functions inside functions, nor `__len__` and its kin."""
    for node in tree.body:
        for inner in [node, *(node.body if isinstance(node, ast.ClassDef) else [])]:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("__"):
                yield inner


def long_lines(text: str, tree: ast.Module) -> list[int]:
    """Return the numbers of too long lines: above `LONGEST`, above `CODE` where a paragraph is one line."""
    lines = text.splitlines()
    noted = {n for n, _ in comments(text)}
    prose = noted | {n for s in strings(tree) for n in range(s.lineno, (s.end_lineno or s.lineno) + 1)}

    def joins(one: int, other: int) -> bool:
        """Whether two lines are of one paragraph."""
        texts = [lines[n - 1].rstrip() for n in (one, other)] if {one, other} <= prose else ["", ""]
        return all(texts) and len({len(each) - len(each.lstrip()) for each in texts}) == 1 and texts[1].strip() != '"""'

    alone = {n for n in prose if not joins(n - 1, n) and not joins(n, n + 1)}
    return sorted(n for n in prose if len(lines[n - 1]) > (CODE if n in alone else LONGEST))


def orphans(text: str, tree: ast.Module) -> list[int]:
    """Return the first lines of texts of two lines that would fit on one."""
    lines = text.splitlines()
    found = []
    for string in strings(tree):
        body = lines[string.lineno - 1 : string.end_lineno]
        if len(body) == 3 and body[2].strip() == '"""' and len(body[0].rstrip()) + len(body[1].strip()) + 4 <= CODE:
            found.append(string.lineno)
    return found


def measure(path: Path) -> Counter[str]:
    """Return what is counted in one file."""
    text = path.read_text()
    tree = ast.parse(text)
    counted = Counter(lines=text.count("\n"), comments=len(comments(text)), long=len(long_lines(text, tree)))
    for string in strings(tree):
        counted["docstrings"] += (string.end_lineno or string.lineno) - string.lineno + 1
        counted["examples"] += ">>> " in str(string.value)
    for function in functions(tree):
        missing = lacks(function)
        public = not function.name.startswith("_")
        counted["public"] += public
        counted["told"] += public and "docstring" not in missing
        counted["texts"] += "docstring" not in missing
        counted["verbs"] += not missing & {"docstring", "verb"}
        listing = "Args:" in (ast.get_docstring(function) or "")
        counted["listed"] += public and listing
        counted["unlisted"] += "args" in missing
    return counted


def table() -> str:
    """Return the table of all rooms. Shares are percent."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path in files():
        measured = measure(path)
        rooms[room_of(path)] += measured
        rooms["product"] += measured

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:9.1f}" if whole else f"{'-':>9}"

    heads = ("docstr.", "comment", "public+", "verb", "args", "examples", ">110")
    rows = [f"{'room':28}{'lines':>8}" + "".join(f"{head:>9}" for head in heads)]
    for room, n in rooms.items():
        shares = (
            share(n["docstrings"], n["lines"]),
            share(n["comments"], n["lines"]),
            share(n["told"], n["public"]),
            share(n["verbs"], n["texts"]),
            share(n["listed"], n["listed"] + n["unlisted"]),
        )
        rows.append(f"{room:28}{n['lines']:8}" + "".join(shares) + f"{n['examples']:9}{n['long']:9}")
    rows.append("docstr., comment: of lines. public+: public functions with a docstring. verb: docstrings of functions")
    rows.append("that open with one. args: public functions of two parameters or more that list them.")
    return "\n".join(rows)


def without(what: str, within: str) -> Iterator[str]:
    """Yield the places in `within` that lack `what`."""
    for path in files(within):
        text = path.read_text()
        tree = ast.parse(text)
        where = path.relative_to(ROOT)
        if what == "long":
            yield from (f"{where}:{number}" for number in long_lines(text, tree))
            continue
        for function in functions(tree):
            if what in lacks(function):
                opening = (ast.get_docstring(function) or "").partition("\n")[0]
                yield f"{where}:{function.lineno}: {function.name}: {opening}"


def sentences() -> list[tuple[str, str]]:
    """Return (where, sentence) of all docstrings, refusals and pages. Code, tables and headings are left out."""
    texts: list[tuple[str, str]] = []
    for path in files():
        texts += [(f"{path.relative_to(ROOT)}:{s.lineno}", str(s.value)) for s in strings(ast.parse(path.read_text()))]
    texts += [("refusal", line) for line in (ROOT / "tests/docs/refusals.txt").read_text().splitlines()]
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        blocks = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).split("\n\n")
        texts += [(str(page.relative_to(ROOT)), b) for b in blocks if not b.lstrip().startswith(("|", "#", "<", ":"))]
    found = []
    for where, text in texts:
        flat = " ".join(text.split())
        found += [(where, s) for s in re.split(r"(?<=[.;:?]) (?=[A-Z`])", flat) if len(s.split()) > 4]
    return found


def main(words: list[str]) -> int:
    """Print the table, a list of places, or sentences drawn at random."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", choices=("docstring", "verb", "args", "long"))
    parser.add_argument("--draw", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("within", nargs="?", default="", help="a part of a path")
    asked = parser.parse_args(words)
    if asked.without:
        print("\n".join(without(asked.without, asked.within)))
    elif asked.draw:
        for where, sentence in random.Random(asked.seed).sample(sentences(), asked.draw):
            print(f"{where}\n    {sentence}")
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
