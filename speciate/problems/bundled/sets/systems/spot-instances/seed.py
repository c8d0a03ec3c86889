"""On demand whenever the slack is small, which it is from the start."""


# EVOLVE-BLOCK-START
def instance(work, ticks, present, starting, available):
    """Return 0 (none), 1 (spot) or 2 (on demand); the last of ``available`` is the present tick."""
    slack = ticks - work - starting
    if slack < 30.0:
        return 2
    if available[-1] > 0:
        return 1
    return 0


def choose(jobs):
    """Return the instance of each job."""
    return [instance(*job) for job in jobs]


# EVOLVE-BLOCK-END
