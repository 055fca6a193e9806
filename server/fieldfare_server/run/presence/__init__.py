"""Who is there, and what may be counted."""
