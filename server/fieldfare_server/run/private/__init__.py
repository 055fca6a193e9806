"""Flower apps of one's own made private: strategies, and what they ask and show."""
