"""Run Flower's SuperExec so that the log of its ServerApps is visible.

    python -Pm fieldfare_flower.coordinator ARGUMENT ...        (the arguments of flower-superexec)

Flower 1.41 shows what a ServerApp prints only to clients that follow the run (`flwr log`, pull request 3577). No client
follows a run that the supervisor resumed, so its log would be lost. Here it goes where this process prints.

Upstream: no issue is known. This module becomes unnecessary once flower-superexec has an option for it. A Flower
without the attribute runs as it is, with a warning.
"""

from __future__ import annotations

from fieldfare_flower import logs, private


def show_serverapp_output(plugin: type | None) -> bool:
    """Let tasks of the SuperExec's `plugin` class print; False where the class has no such switch."""
    if plugin is None or not hasattr(plugin, "suppress_output"):
        return False
    plugin.suppress_output = False
    return True


def main() -> None:
    """See the module."""
    superexec = private.load_program("flower-superexec")
    # After Flower was imported, which gives its logger a handler.
    logs.configure("info")
    if not show_serverapp_output(private.find("flwr.supercore.superexec.run_superexec:AutoExecPlugin")):
        private.warn("the ServerApp's log is only in `flwr log`")
    superexec()


if __name__ == "__main__":
    main()
