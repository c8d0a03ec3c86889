"""Nearly first come, first served."""


# EVOLVE-BLOCK-START
def urgency(waited, duration, left, length):
    """Return how urgent a job is; ``length`` is the number of waiting jobs."""
    return 1.0 * waited - 0.2 * duration - 0.05 * left + 0.01 * length / duration


def pick(queues):
    """Return, for each queue, the position of the most urgent job."""
    return [max(range(len(jobs)), key=lambda i: urgency(*jobs[i], len(jobs))) for jobs in queues]


# EVOLVE-BLOCK-END
