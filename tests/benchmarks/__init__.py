"""Measurements, side by side in one run: ``make bench``. Nothing here is a test and nothing asserts a time."""
