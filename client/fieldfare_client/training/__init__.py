"""Local training of many users: what a node does between receiving a model and sending one sum.

`Trainer` is the entry point. Engines differ in speed, never in the result: see `engines`.
"""

from fieldfare_client.training.clip import clip_with
from fieldfare_client.training.dropout import KeyedDropout
from fieldfare_client.training.trainer import Clip, CohortUpdate, Trainer

__all__ = ["Clip", "CohortUpdate", "KeyedDropout", "Trainer", "clip_with"]
