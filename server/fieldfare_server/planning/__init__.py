"""What a plan will cost, before it is run."""
