"""Eight of Flower's examples in their documented shape, with small local data. None of them knows of privacy."""
