"""What the log says: the state that events make."""
