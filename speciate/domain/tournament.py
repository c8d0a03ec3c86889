"""Tournaments: head-to-head comparisons of policies, declared before the first run.

This room is reserved: the design of a tournament (problem set × entrants × seeds × budget) becomes values here, its
statistics live in ``speciate.tournaments``.
"""
