"""Flower apps of one's own made private: strategies, dialects, models."""
