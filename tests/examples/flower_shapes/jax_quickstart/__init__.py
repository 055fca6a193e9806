"""jax_quickstart"""
