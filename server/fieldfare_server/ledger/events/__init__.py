"""What can happen to a budget: frozen typed events, one file a subject."""
