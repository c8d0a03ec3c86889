"""OpenEvolve, ShinkaEvolve and GEPA beside Speciate: one endpoint, one budget, the same problems. Not in the wheel."""
