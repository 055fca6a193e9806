"""One round: select, open, send, sum, close, privatise, step, checkpoint, commit."""
