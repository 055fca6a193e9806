"""Patients on hospitals' nodes, and a training loop of one's own."""
