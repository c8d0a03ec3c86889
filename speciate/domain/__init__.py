"""The words of the project as frozen values: no I/O, no clock, no randomness."""
