"""Counters, gauges and totals of an installation."""
