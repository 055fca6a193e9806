"""The ledger's real code under a simulated clock, scheduler and disk: one seed, one history (docs/tested.md)."""
