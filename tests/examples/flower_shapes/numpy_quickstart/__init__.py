"""numpy_quickstart"""
