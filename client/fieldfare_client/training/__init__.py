"""Local training of many users: what a node does between receiving a model and sending one sum.

`trainer.Trainer` is the entry point. Engines differ in speed, never in the result: see `engines`.
"""
