"""From a selection to a prompt, and from a completion to children. Pure text work: no I/O, no clock, rng passed in."""
