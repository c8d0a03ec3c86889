"""Simulate jobs with deadlines on spot and on-demand instances: the candidate chooses one for every tick.

Availability of the future is never shown. The jobs of a group advance together, those that are held out last.
"""

import math
import random

WORK = 48
DEADLINE = 72
OVERHEAD = 2
SHOWN = 6
SPOT, ON_DEMAND = 1, 2
PRICES = (0.0, 1.0, 3.0)
TRAIN = tuple((70 + i, stay_up, stay_down) for i, (stay_up, stay_down) in enumerate(
    ((0.97, 0.7), (0.95, 0.9), (0.9, 0.9), (0.85, 0.95), (0.8, 0.6), (0.98, 0.97), (0.7, 0.8), (0.93, 0.85))
))  # fmt: skip
HELD_OUT = tuple((90 + i, stay_up, stay_down) for i, (_, stay_up, stay_down) in enumerate(TRAIN))
"""Seed, and the probabilities that spot instances stay available and unavailable from one tick to the next."""


def availability(seed, stay_up, stay_down):
    """Return for each tick whether there is a spot instance, as 0 or 1."""
    rng = random.Random(seed)
    ticks = [int(rng.random() < (1 - stay_down) / (2 - stay_up - stay_down))]
    while len(ticks) < SHOWN + DEADLINE:
        stays = rng.random() < (stay_up if ticks[-1] else stay_down)
        ticks.append(ticks[-1] if stays else 1 - ticks[-1])
    return ticks


COPIES = 3
TRACES = {
    prefix: [availability(1000 * copy + seed, up, down) for seed, up, down in traces for copy in range(COPIES)]
    for prefix, traces in (("", TRAIN), ("held_out_", HELD_OUT))
}


class Job:
    """A job that runs through one trace."""

    def __init__(self, available):
        self.available = available
        self.left = WORK
        self.starting = 0
        self.instance = 0
        self.cost = 0.0
        self.finished = None

    def offer(self, tick):
        """Return work and ticks left, present instance, ticks until it works, and recent availability, newest last."""
        shown = self.available[tick : tick + SHOWN + 1]
        return [self.left, DEADLINE - tick, self.instance, self.starting, shown]

    def use(self, tick, instance):
        """Spend one tick on an instance; a spot instance that is not available is none."""
        if instance == SPOT and not self.available[tick + SHOWN]:
            instance = 0
        if instance != self.instance:
            self.starting = OVERHEAD if instance else 0
            self.instance = instance
        self.cost += PRICES[instance]
        if self.starting:
            self.starting -= 1
        elif instance:
            self.left -= 1
            if not self.left:
                self.finished = tick + 1

    def close(self):
        """Count the work that is left at the deadline as done on demand, so that the cost is of a whole job."""
        if self.finished is None:
            self.cost += PRICES[ON_DEMAND] * (self.left + OVERHEAD)


def evaluate(candidate, context):
    """Return cost in percent of on-demand instances alone, finish in percent of the deadline, and missed deadlines."""
    groups = {prefix: [Job(trace) for trace in traces] for prefix, traces in TRACES.items()}
    for prefix, group in groups.items():
        for tick in range(DEADLINE):
            if working := [job for job in group if job.finished is None]:
                choose(candidate, context, working, tick, held_out=bool(prefix))
    rewards = {}
    for prefix, group in groups.items():
        for job in group:
            job.close()
        full = PRICES[ON_DEMAND] * (WORK + OVERHEAD)
        rewards[f"{prefix}cost"] = round(100 * math.fsum(job.cost for job in group) / full / len(group), 6)
        rewards[f"{prefix}finish"] = round(
            100 * sum(job.finished or DEADLINE + job.left for job in group) / DEADLINE / len(group), 6
        )
        rewards[f"{prefix}missed"] = sum(job.finished is None for job in group)
    parts = [groups[""][i : i + COPIES] for i in range(0, len(groups[""]), COPIES)]
    costs = [round(100 * math.fsum(job.cost for job in part) / full / COPIES, 1) for part in parts]
    context.note("cost by kind of availability", str(costs))
    return rewards


def choose(candidate, context, jobs, tick, held_out):
    """Let the candidate choose an instance for each job."""
    choices = candidate.call("choose", [job.offer(tick) for job in jobs], held_out=held_out).unwrap()
    if not isinstance(choices, list) or len(choices) != len(jobs):
        context.invalid(f"choose: expected a list of {len(jobs)} instances")
    for job, choice in zip(jobs, choices, strict=True):
        if type(choice) is not int or choice not in (0, SPOT, ON_DEMAND):
            context.invalid("choose: expected 0 (none), 1 (spot) or 2 (on demand)")
        job.use(tick, choice)
