"""lightning_quickstart"""
