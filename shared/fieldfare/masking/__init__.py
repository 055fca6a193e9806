"""Masked sums: nodes send words under one-time masks, a blinder knows the masks, and the server only reads sums.

    words.py    numbers as words of a ring, and back; the mask of a seed
    boxes.py    a seed for the eyes of the blinder, and who signs what
    receipts.py what the blinder signs of each answer

Where noise meets such a sum, `fieldfare.privatise` says why it must come before the words are read as numbers.
"""
