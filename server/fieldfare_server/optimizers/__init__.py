"""Server optimizers: post-processing of the privatised update, one kind a file."""

from fieldfare_server.optimizers import adamw, disk, fedopt, ftrl, normalised_momentum, sgd, three_query
from fieldfare_server.optimizers.base import Points, ServerOptimizer, State, StepInfo
from fieldfare_server.optimizers.registry import build, kinds, parse, register, spec

# The files of this package that register a kind.
FILES = (adamw, disk, fedopt, ftrl, normalised_momentum, sgd, three_query)

__all__ = [
    "FILES",
    "Points",
    "ServerOptimizer",
    "State",
    "StepInfo",
    "build",
    "kinds",
    "parse",
    "register",
    "spec",
]
