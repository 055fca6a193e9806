"""What can be shown to a stranger."""
