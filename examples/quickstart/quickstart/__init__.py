"""Flower's PyTorch quick start on handwritten digits. Only `server_app.py` knows of privacy."""
