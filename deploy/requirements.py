"""Print what a pyproject.toml depends on, for the named extras, so that an image installs it before the project."""

import sys
import tomllib
from pathlib import Path


def requirements(path: Path, extras: list[str]) -> list[str]:
    """Sorted requirement lines, without those that name the project itself."""
    project = tomllib.loads(path.read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return sorted({line for line in wanted if not line.startswith(project["name"])})


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]), sys.argv[2:])))
