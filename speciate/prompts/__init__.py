"""Build prompts and parse completions: pure text processing without I/O or clock, with the rng passed in."""
