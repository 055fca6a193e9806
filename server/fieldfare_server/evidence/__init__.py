"""What a stranger can check: guarantee, statement, registry entry, residual test, verification of the ledger."""
