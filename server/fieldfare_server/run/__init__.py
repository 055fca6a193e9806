"""One run, round by round."""
