"""The arithmetic of mechanisms: factorizations, sensitivities over patterns, objectives. Arrays in, arrays out."""
