"""Run Flower's SuperExec so that the log of its ServerApps is visible, and that it outlives a locked
SuperLink.

    python -Pm fieldfare_flower.coordinator ARGUMENT ...        (the arguments of flower-superexec)

Flower 1.41 shows what a ServerApp prints only to clients that follow the run (`flwr log`, pull request 3577).
No client follows a run that the supervisor resumed, so its log would be lost. Here it goes where this process
prints.

It ends when the SuperLink answers its question for work with a server error, and its ServerApp with it. A
SuperLink with SQLite answers so while one node uploads a gigabyte, which locks the database. Here it asks
again.

Upstream: no issue is known. This module becomes unnecessary once flower-superexec has an option for the log,
and asks again. A Flower without these names runs as it is, with a warning.
"""

from __future__ import annotations

import math

from fieldfare_flower import logs, private
from fieldfare_flower.server_errors import ask_again


def show_serverapp_output(plugin: type | None) -> bool:
    """Let tasks of the SuperExec's `plugin` class print; False where the class has no such switch."""
    if plugin is None or not hasattr(plugin, "suppress_output"):
        return False
    plugin.suppress_output = False
    return True


def survive_http_500(client: type | None) -> bool:
    """Make clients of the class `client` ask for work again after a server error; False where they do not ask."""
    acquire = getattr(client, "AcquireTask", None)
    if client is None or acquire is None:
        return False

    def acquire_task(self: object, request: object) -> object:
        return ask_again(lambda: acquire(self, request), math.inf)

    client.AcquireTask = acquire_task  # type: ignore[attr-defined]
    return True


def main() -> None:
    """See the module."""
    superexec = private.load_program("flower-superexec")
    # After Flower was imported, which gives its logger a handler.
    logs.configure("info")
    if not show_serverapp_output(private.find("flwr.supercore.superexec.run_superexec:AutoExecPlugin")):
        private.warn("the ServerApp's log is only in `flwr log`")
    if not survive_http_500(private.find("flwr.supercore.runtime.runtime_http_client:RuntimeHttpClient")):
        private.warn("a server error of the SuperLink ends the coordinator")
    superexec()


if __name__ == "__main__":
    main()
