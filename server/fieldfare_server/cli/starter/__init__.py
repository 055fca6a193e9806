"""What `fieldfare init` copies: a task over a CSV file. It is a module here so that it is checked like any other."""
