"""Exact errors and bounds of noisy gradient descent: what planners compare and tests check against."""
