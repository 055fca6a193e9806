"""Errors of noisy gradient descent in closed form: what planners compare plans by."""
