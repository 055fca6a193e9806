"""Write the digest of every image that a deployment takes from a registry, for `docker compose --env-file`.

    python deploy/supply/pin_images.py [ENGINE]        # or `make pin-images`; asks the registries
    docker compose --env-file deploy/images.env up --build --detach

Tags move; a digest names one image for good. The digests are what the registry answers today: review the change like
any other. For the chart, `--set-string ledger.image=...,gate.image=...` with the same references.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPOSE, TARGET = ROOT / "docker-compose.yml", ROOT / "deploy/images.env"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
REFERENCE = re.compile(r"\$\{(FIELDFARE_[A-Z]+_IMAGE):-([\w./-]+:[\w.-]+)\}")


def images(text: str) -> dict[str, str]:
    """Variable -> reference with a tag, of a compose file."""
    return {name: reference for name, reference in REFERENCE.findall(text) if "/" in reference}


def look_up(engine: list[str], reference: str) -> str:
    """The digest of the manifest list that the registry has under `reference`.

    Raises `CalledProcessError` where the engine cannot ask, ValueError where its answer holds no digest.
    """
    command = [*engine, "buildx", "imagetools", "inspect", "--format", "{{json .Manifest}}", reference]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    digest = str(json.loads(answer)["digest"])
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"{reference}: the registry's answer {digest[:80]!r} is no digest")
    return digest


def main() -> None:
    """Pin every image; write nothing where one cannot be looked up."""
    engine = shlex.split(sys.argv[1] if len(sys.argv) > 1 else "docker")
    lines = []
    for name, reference in sorted(images(COMPOSE.read_text()).items()):
        try:
            lines.append(f"{name}={reference}@{look_up(engine, reference)}")
        except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
            print(f"{reference}: cannot be looked up ({error}). Nothing was written.", file=sys.stderr)
            sys.exit(2)
    TARGET.write_text("# Made by `make pin-images`.\n" + "\n".join(lines) + "\n")
    print(f"{len(lines)} images pinned in {TARGET.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
