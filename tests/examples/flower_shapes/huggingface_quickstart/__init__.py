"""huggingface_quickstart"""
