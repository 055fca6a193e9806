"""One round, and how nodes are told of it: select, open, send, sum, close, privatise, step, checkpoint, commit."""
