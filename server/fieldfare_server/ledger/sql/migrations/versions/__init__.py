"""One file a released version. A released file is never edited."""
