"""Machine parts of mechanisms: factorizations, their patterns and their objectives. Arrays in, arrays out."""
