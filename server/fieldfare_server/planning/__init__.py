"""What a plan is likely to achieve, before any budget is spent on it."""
