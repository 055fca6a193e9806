"""Look for known vulnerabilities in what the locks pin, without a network.

    git clone --depth 1 https://github.com/pypa/advisory-database advisories
    python deploy/supply/audit.py advisories [LOCK...]        # or `make audit ADVISORIES=advisories`

The database is a clone of PyPA's, one OSV record a file; its commit is the pin, and is printed. Without one the audit
is skipped, and says so. Exit code 2 for a vulnerability that is not listed in `deploy/supply/accepted.toml`.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from licences import LOCKS, ROOT, names
from packaging.version import Version

ACCEPTED = ROOT / "deploy/supply/accepted.toml"
"""Advisory -> why it does not concern Fieldfare."""


def is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """Whether one `affected` entry of an OSV record names `version`, in its list or in one of its ranges."""
    if version in affected.get("versions", []):
        return True
    ours = Version(version)
    for spread in affected.get("ranges", []):
        if spread["type"] != "ECOSYSTEM":
            continue  # commits of a repository say nothing of a release
        inside = False
        for event in spread["events"]:
            if "introduced" in event:
                inside = inside or event["introduced"] == "0" or ours >= Version(event["introduced"])
            elif "fixed" in event:
                inside = inside and ours < Version(event["fixed"])
            elif "last_affected" in event:
                inside = inside and ours <= Version(event["last_affected"])
        if inside:
            return True
    return False


def advisories(database: Path, package: str) -> Iterator[Mapping[str, Any]]:
    """The OSV records of a package that were not withdrawn."""
    for path in sorted((database / "vulns" / package).glob("*.yaml")):
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not record.get("withdrawn"):
            yield record


def find(database: Path, pins: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """(package, version, advisory, its other names) of each known vulnerability in `pins` (package -> version)."""
    return [
        (package, version, str(record["id"]), ", ".join(record.get("aliases", [])))
        for package, version in sorted(pins.items())
        for record in advisories(database, package)
        if any(is_affected(version, one) for one in record["affected"] if one["package"]["ecosystem"] == "PyPI")
    ]


def commit(database: Path) -> str:
    """The commit of the clone, with its date; "" where it is none."""
    command = ["git", "-C", str(database), "log", "-1", "--format=%H of %cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    """Audit the locks that the command line names; see the module."""
    database = Path(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] else None
    if database is None:
        print("The audit is skipped: no advisory database was named. Nearest allowed: make audit ADVISORIES=CLONE")
        return
    if not (database / "vulns").is_dir():
        print(f"{database}: no clone of PyPA's advisory database: it has no vulns/.", file=sys.stderr)
        sys.exit(2)
    locks = [Path(name) for name in sys.argv[2:]] or [ROOT / name for name in LOCKS]
    constraints = names(ROOT / "constraints.txt")
    pins = {name: version for path in locks for name, version in names(path).items()} | {"torch": constraints["torch"]}
    accepted = tomllib.loads(ACCEPTED.read_text())
    found = find(database, pins)
    for package, version, advisory, aliases in found:
        why = f"accepted: {accepted[advisory]}" if advisory in accepted else "KNOWN VULNERABILITY"
        print(f"{package} {version}: {advisory} ({aliases}): {why}")
    open_ = [advisory for _, _, advisory, _ in found if advisory not in accepted]
    print(f"{len(pins)} packages, {len(open_)} open advisories, by the database at {commit(database) or 'no commit'}.")
    if open_:
        sys.exit(2)


if __name__ == "__main__":
    main()
