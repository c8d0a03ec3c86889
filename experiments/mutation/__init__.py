"""Compare a small language model, random edits, and both, as mutators of bundled problems."""
