"""Fill in the metadata that depends on where the repository is published.

A package index shows the README without its folder, so relative images and links lead nowhere there. The build reads
the repository's address from the environment variable REPOSITORY_URL: with it, images and links become absolute and the
metadata names the project's pages; without it, the README goes in as it is. Forks therefore never point at each other.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def absolute(readme: str, repository: str) -> str:
    """`readme` with every relative Markdown image and link made absolute below `repository` (no trailing slash)."""

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({repository}/{kind}/main/{match[3]})"

    return RELATIVE.sub(link, readme)


class CustomMetadataHook(MetadataHookInterface):
    """Hatch calls this once for each build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and, where the address is known, `urls`."""
        repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:
            text = absolute(text, repository)
            metadata["urls"] = {
                "Source": repository,
                "Issues": f"{repository}/issues",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Security": f"{repository}/blob/main/SECURITY.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
