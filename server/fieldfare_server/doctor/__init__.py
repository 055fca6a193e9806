"""What is wrong with a deployment, seen from inside, and how to mend it.

Each file checks one part. Checks return findings, good ones too, so that a reader sees what was checked. They
only read, except for `strangers`, which has to try.
"""
