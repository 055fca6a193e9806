"""ClientApp tasks without an interpreter start each: they are forks of a parent that has imported everything."""
