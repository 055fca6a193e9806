"""pytorch_quickstart"""
