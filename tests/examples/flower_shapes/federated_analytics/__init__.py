"""federated_analytics"""
