"""Sandbox tiers. A tier is one file in ``contained``, one function in ``launch`` and one line in each table.

A tier starts contained processes, stops them and removes what they left. It does not interpret messages, so a new tier
needs no change in the worker.
"""
