"""Tournaments and campaigns: declarations, plans and results."""
