"""Operators of ``program_mutator``: find the places of a program that may change, and edit them."""
