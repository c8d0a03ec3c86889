"""Read problems from directories and JSON definitions; includes the bundled problems."""
