"""One run from its beginning to its end; below it one round, who is there, and Flower apps made private."""
