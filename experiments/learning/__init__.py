"""Does a policy that learns from its own search unlock more than a frozen one? ``python -m experiments.learning``."""
