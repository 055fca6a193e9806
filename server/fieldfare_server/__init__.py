"""Everything that is trusted with raw updates or with the privacy budget."""
