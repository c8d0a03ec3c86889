"""Head-to-head tournaments: statistics, the report and its rendering. Pure functions without I/O."""
