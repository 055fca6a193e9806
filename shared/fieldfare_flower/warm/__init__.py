"""Tasks of a Flower executor without an interpreter start each: forks of a parent that has imported everything."""
