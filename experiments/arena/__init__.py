"""Strategies and simple rules side by side, on fast problems, in one process and on a simulated clock."""
