"""Simulate clusters of identical machines: the candidate chooses which waiting job starts next.

Jobs run without interruption. The clusters of a group advance together, so that one call of the candidate serves all of
them; those that are held out come last.
"""

import heapq
import itertools
import math
import random

JOBS = 150
MACHINES = 3
TRAIN = ((31, 0.85, 1.2), (32, 0.95, 1.6), (33, 1.05, 0.8))
HELD_OUT = ((41, 0.85, 1.2), (42, 0.95, 1.6), (43, 1.05, 0.8))
"""Seed, utilization, and spread of the durations (standard deviation of their logarithm)."""


def jobs_of(seed, load, spread):
    """Return the jobs of a trace in order of arrival: [arrival, duration, deadline]."""
    rng = random.Random(seed)
    jobs, now = [], 0.0
    typical = math.exp(spread * spread / 2)
    for _ in range(JOBS):
        now -= math.log(1 - rng.random()) * typical / (MACHINES * load)
        normal = math.sqrt(-2 * math.log(1 - rng.random())) * math.cos(2 * math.pi * rng.random())
        duration = math.exp(spread * normal)
        slack = 0.5 + (12 * rng.random() if rng.random() < 0.6 else 3 * rng.random())
        jobs.append([now, duration, now + duration + slack * typical / 2])
    return jobs


TRACES = {"": [jobs_of(*each) for each in TRAIN], "held_out_": [jobs_of(*each) for each in HELD_OUT]}


class Cluster:
    """A cluster that works through one trace."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.free_at = [0.0] * MACHINES
        self.arrived = 0
        self.waiting = []
        self.finished = []
        self.now = 0.0

    def advance(self):
        """Move to the next time when a machine is free and at least one job waits; return False at the end."""
        if len(self.finished) == len(self.jobs):
            return False
        self.now = max(self.now, self.free_at[0])
        if not self.waiting and self.arrived < len(self.jobs):
            self.now = max(self.now, self.jobs[self.arrived][0])
        while self.arrived < len(self.jobs) and self.jobs[self.arrived][0] <= self.now:
            self.waiting.append(self.jobs[self.arrived])
            self.arrived += 1
        return True

    def offer(self):
        """Return the waiting jobs as the candidate sees them, in order of arrival."""
        return [
            [round(self.now - arrival, 6), round(duration, 6), round(deadline - self.now, 6)]
            for arrival, duration, deadline in self.waiting
        ]

    def start(self, position):
        """Start a waiting job."""
        arrival, duration, deadline = self.waiting.pop(position)
        end = self.now + duration
        heapq.heapreplace(self.free_at, end)
        self.finished.append((arrival, duration, deadline, end))


def evaluate(candidate, context):
    """Return mean slowdown, share of late jobs in percent and longest wait."""
    groups = {prefix: [Cluster(jobs) for jobs in traces] for prefix, traces in TRACES.items()}
    for prefix, group in groups.items():
        while busy := [cluster for cluster in group if cluster.advance()]:
            start_jobs(candidate, context, busy, held_out=bool(prefix))
    rewards = {}
    for prefix, group in groups.items():
        done = [job for cluster in group for job in cluster.finished]
        slowdowns = [(end - arrival) / max(duration, 0.5) for arrival, duration, _, end in done]
        rewards[f"{prefix}slowdown"] = round(math.fsum(slowdowns) / len(done), 6)
        rewards[f"{prefix}late"] = round(100 * sum(end > deadline for _, _, deadline, end in done) / len(done), 6)
        rewards[f"{prefix}longest_wait"] = round(max(end - arrival - duration for arrival, duration, _, end in done), 6)
    note_parts(context, groups[""])
    return rewards


def note_parts(context, clusters):
    """Note which jobs of the traces that are shown are late."""
    late = [sum(end > deadline for _, _, deadline, end in cluster.finished) for cluster in clusters]
    context.note("late jobs by trace", f"{late} of {JOBS}")
    done = [job for cluster in clusters for job in cluster.finished]
    classes = []
    for low, high in itertools.pairwise((0, 0.5, 1, 2, 4, math.inf)):
        ends = [end > deadline for _, duration, deadline, end in done if low <= duration < high]
        classes.append(f"{low} to {high}: {sum(ends)} of {len(ends)}")
    context.note("late jobs by duration", ", ".join(classes))


def start_jobs(candidate, context, clusters, held_out):
    """Let the candidate start one job on each of the clusters."""
    offers = [cluster.offer() for cluster in clusters]
    choices = candidate.call("pick", offers, held_out=held_out).unwrap()
    if not isinstance(choices, list) or len(choices) != len(offers):
        context.invalid(f"pick: expected a list of {len(offers)} positions, one for each queue")
    for cluster, offer, choice in zip(clusters, offers, choices, strict=True):
        if type(choice) is not int or not 0 <= choice < len(offer):
            context.invalid(f"pick: expected a position from 0 to {len(offer) - 1} among the waiting jobs")
        cluster.start(choice)
