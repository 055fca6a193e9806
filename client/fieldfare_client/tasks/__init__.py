"""Tasks that ship with Fieldfare: a model, users' data and a score, one task a file."""
