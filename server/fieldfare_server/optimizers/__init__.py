"""Server optimizers: post-processing of the privatised update, one a file."""

from fieldfare_server.optimizers import sgd as _sgd  # noqa: F401  (registers its kind)
from fieldfare_server.optimizers.base import OptimizerSpec, Points, ServerOptimizer, State, StepInfo
from fieldfare_server.optimizers.registry import build, kinds, parse, register

__all__ = [
    "OptimizerSpec",
    "Points",
    "ServerOptimizer",
    "State",
    "StepInfo",
    "build",
    "kinds",
    "parse",
    "register",
]
