"""Packages of the scientific stack, each with a real computation that runs contained."""
