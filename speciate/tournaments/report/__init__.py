"""The report of a tournament, computed from stored run results."""
