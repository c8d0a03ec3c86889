"""Pure statistics of head-to-head tournaments: estimators, tests, report. Reads unlocks and runs, never a queue."""
