"""Scripts that the peers' own Python runs; they see nothing of Speciate but ``scoring``."""
