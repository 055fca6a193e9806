"""Check the licence of every package that a lock names; fail on one that is unknown or not allowed.

    python deploy/supply/licences.py [LOCK...]        # or `make licences`; default: the image's and the tests'

Reads what the packages that are installed here say of themselves: SPDX (License-Expression), else trove classifiers,
else the table below of those that say it only in free words. Packages that are not installed here are named, and fail.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = ("locks/image.lock", "locks/dev.lock")

ALLOWED = frozenset(
    [
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CNRI-Python",
        "HPND",
        "ISC",
        "LGPL-3.0-only",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
    ]
)
"""Each lets the image be used and passed on. LGPL (psycopg) and MPL (certifi, tqdm, ...) ask that changes to those
packages be passed on too, and that users may replace them; the image has them unchanged, as Python modules."""

BUILD_ONLY = frozenset({"wheel"})
"""Builds a package of the image, and leaves it before it ships; not installed where the tests run."""

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "CC0-1.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
WORDS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "cc0": "CC0-1.0",
    "mit license": "MIT",
}


def names(lock: Path) -> dict[str, str]:
    """Package -> version, of a lock or of constraints; names as PyPI normalises them."""
    pins = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", lock.read_text(), re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


def licence(package: str) -> str:
    """An SPDX expression of the installed `package`, "" where it states none that is known.

    Several classifiers are joined by AND, the stricter reading. Raises `PackageNotFoundError`.
    """
    about = metadata(package)
    if expression := about.get("License-Expression"):
        return str(expression)
    marks = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    found = sorted({CLASSIFIERS.get(mark, "") for mark in marks if mark not in ("OSI Approved", "DFSG approved")})
    if found:
        return "" if "" in found else " AND ".join(found)
    words = str(about.get("License") or "").strip()
    return WORDS.get(words.lower(), words if is_allowed(words) else "")


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met: every AND, and one side of every OR, is allowed."""
    tokens = re.findall(r"[()]|[^\s()]+", expression)

    def alternatives() -> bool:
        met = together()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            other = together()
            met = met or other
        return met

    def together() -> bool:
        met = single()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            other = single()
            met = met and other
        return met

    def single() -> bool:
        if not tokens or tokens[0] in (")", "AND", "OR", "WITH"):
            raise ValueError
        first = tokens.pop(0)
        if first == "(":
            met = alternatives()
            if not tokens or tokens.pop(0) != ")":
                raise ValueError
            return met
        if tokens[:1] == ["WITH"]:  # an exception only permits more
            del tokens[:2]
        return first in ALLOWED

    try:
        return alternatives() and not tokens
    except ValueError:
        return False


def check(packages: list[str]) -> list[str]:
    """What is wrong with each of `packages`, in words."""
    wrong = []
    for package in sorted(packages):
        try:
            expression = licence(package)
        except PackageNotFoundError:
            wrong.append(f"{package}: not installed here, so its licence is not known. Nearest allowed: make install")
            continue
        if not expression:
            wrong.append(f"{package}: states no licence that is known. Nearest allowed: read it, then name it in WORDS")
        elif not is_allowed(expression):
            wrong.append(f"{package}: {expression} is not allowed. Nearest allowed: another package")
    return wrong


def main() -> None:
    """Check the locks that the command line names; exit code 2 where one package fails."""
    locks = [Path(name) for name in sys.argv[1:]] or [ROOT / name for name in LOCKS]
    packages = {name for path in locks for name in names(path)} - BUILD_ONLY | {"torch"}
    if wrong := check(sorted(packages)):
        print("\n".join(wrong), file=sys.stderr)
        sys.exit(2)
    print(f"{len(packages)} packages, each under a licence that is allowed.")


if __name__ == "__main__":
    main()
