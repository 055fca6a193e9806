"""What may happen: the only place where a budget says no."""
