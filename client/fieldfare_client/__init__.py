"""Everything that sees a user's data."""
