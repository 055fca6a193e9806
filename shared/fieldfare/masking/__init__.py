"""Masked sums: nodes send words under one-time masks, a blinder knows the masks, and the server only reads sums.

`words`: numbers in a ring, and masks. `boxes`: a seed for the blinder's eyes, signed. `receipts`: what it signs itself.
Where noise meets such a sum, `fieldfare.privatise` says why it must come before the words are read as numbers.
"""
