"""From a program and an evaluator to a better program, for the command ``speciate evolve`` and ``speciate.evolve``."""
