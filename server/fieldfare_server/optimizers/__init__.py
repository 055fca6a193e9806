"""Server optimizers: post-processing of the privatised update, one a file."""
