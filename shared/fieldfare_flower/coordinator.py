"""The coordinator: Flower's SuperExec, whose ServerApps can be heard.

    python -Pm fieldfare_flower.coordinator ARGUMENT ...        (those of flower-superexec)

Flower 1.41 throws away what a ServerApp prints: only who follows the run sees it, and nobody follows one that was
resumed. Here it goes where this process prints. The attribute that says so is Flower's own; a Flower without it is run
as it is, with a warning.
"""

from __future__ import annotations

import logging
from typing import Any

from fieldfare_flower import logs
from fieldfare_flower import programs as logged

log = logging.getLogger("fieldfare.superexec")


def unmute(plugin: Any) -> bool:
    """Let tasks of `plugin`, a class, print; False where it does not say that they may not."""
    if not hasattr(plugin, "suppress_output"):
        return False
    plugin.suppress_output = False
    return True


def main() -> None:
    """See the module."""
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.superexec import run_superexec

    logs.configure("info")
    logged.take_over()
    if not unmute(getattr(run_superexec, "AutoExecPlugin", None)):
        log.warning("this Flower's SuperExec is another than 1.41's: what the ServerApp says is with `flwr log`")
    flower_superexec()


if __name__ == "__main__":
    main()
