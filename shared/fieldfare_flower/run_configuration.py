"""The run's configuration, from the grid alone: a strategy is given no Context.

Flower fuses the app's `[tool.flwr.app.config]` with `--run-config` and shows the result to the ServerApp's
function only. The grid knows the run, and the run names the installed app, from which the same is computed
again. Upstream: no issue is known. Unnecessary once `Grid` or `Strategy.start` shows the run's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.serverapp import Grid

from fieldfare_flower import private


def run_configuration(grid: Grid) -> Mapping[str, object] | None:
    """Return what `context.run_config` holds in this run's ServerApp, by dotted keys; None where this grid
    cannot show it.
    """
    shown: Mapping[str, object] | None = getattr(grid, "run_config", None)  # LocalGrid
    if shown is not None:
        return shown
    run = grid.run
    name, version, digest = (getattr(run, key, None) for key in ("fab_id", "fab_version", "fab_hash"))
    if name == "" and not getattr(run, "override_config", None):
        return {}  # no app, so no configuration: Flower's Python API
    place, fuse = (
        private.find("flwr.common.config:get_project_dir"),
        private.find("flwr.common.config:get_fused_config"),
    )
    if not (name and version) or place is None or fuse is None or not place(name, version, digest).is_dir():
        return None
    fused: Mapping[str, object] = fuse(run)
    return fused
