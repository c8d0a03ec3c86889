"""Simulate caches of objects of different sizes: the candidate chooses which objects leave.

The traces of a group advance together, so that one call of the candidate serves all of them; those that are held out
come last. The candidate never receives a request before it is served.
"""

import math
import random

REQUESTS = 300
OBJECTS = 150
CAPACITY = 250
SCAN = "scan"
SHIFT = "shift"
TRAIN = ((11, 0.9, ""), (12, 0.7, SCAN), (13, 1.0, SHIFT))
HELD_OUT = ((21, 0.9, ""), (22, 0.7, SCAN), (23, 1.0, SHIFT))
"""Seed, exponent of the popularity (Zipf), and what disturbs it."""


def trace_of(seed, exponent, disturbance):
    """Return the requests of a trace: pairs of an object's name and its size, 1 to 64 units."""
    rng = random.Random(seed)
    sizes = [int(2 ** (6 * rng.random())) for _ in range(OBJECTS)]
    weights = [(i + 1) ** -exponent for i in range(OBJECTS)]
    names = sorted(range(OBJECTS), key=lambda _: rng.random())
    requests = []
    for step in range(REQUESTS):
        if disturbance == SHIFT and step == REQUESTS // 2:
            names = sorted(names, key=lambda _: rng.random())
        if disturbance == SCAN and step % 100 >= 70:  # objects that are requested once
            requests.append((-step, 1 + int(16 * rng.random())))
        else:
            name = names[drawn(weights, rng.random())]
            requests.append((name, sizes[name]))
    return requests


def drawn(weights, share):
    """Return the position at a share of the sum of the weights."""
    left = share * math.fsum(weights)
    for i, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return i
    return len(weights) - 1


TRACES = {"": [trace_of(*each) for each in TRAIN], "held_out_": [trace_of(*each) for each in HELD_OUT]}


class Cache:
    """A cache that serves one trace; an entry is [size, last use, insertion, uses]."""

    def __init__(self, trace):
        self.trace = trace
        self.entries = {}
        self.used = 0
        self.misses = 0
        self.missed_bytes = 0

    def request(self, step):
        """Serve a request; a missing object has room to be found for it."""
        name, size = self.trace[step]
        if name in self.entries:
            self.entries[name][1] = step
            self.entries[name][3] += 1
            return
        self.misses += 1
        self.missed_bytes += size
        self.entries[name] = [size, step, step, 1]
        self.used += size

    def offer(self, step):
        """Return the units to free, and the entries as the candidate sees them, without the one of the request."""
        objects = list(self.entries.values())[:-1]
        return [self.used - CAPACITY, [[size, step - last, step - first, uses] for size, last, first, uses in objects]]

    def evict(self, positions):
        """Remove the entries at positions of the offer until there is room; return False if they do not suffice."""
        names = list(self.entries)[:-1]
        if not isinstance(positions, list) or not all(type(i) is int and 0 <= i < len(names) for i in positions):
            return False
        for position in positions:
            if self.used > CAPACITY and names[position] in self.entries:
                self.used -= self.entries.pop(names[position])[0]
        return self.used <= CAPACITY


def evaluate(candidate, context):
    """Return the shares of requests and of bytes that miss, in percent."""
    groups = {prefix: [Cache(trace) for trace in traces] for prefix, traces in TRACES.items()}
    for prefix, group in groups.items():
        for step in range(REQUESTS):
            for cache in group:
                cache.request(step)
            if full := [cache for cache in group if cache.used > CAPACITY]:
                make_room(candidate, context, full, step, held_out=bool(prefix))
    rewards = {}
    for prefix, group in groups.items():
        total = sum(size for cache in group for _, size in cache.trace)
        rewards[f"{prefix}object_misses"] = round(100 * sum(c.misses for c in group) / REQUESTS / len(group), 6)
        rewards[f"{prefix}byte_misses"] = round(100 * sum(c.missed_bytes for c in group) / total, 6)
    parts = [(c.misses, REQUESTS, c.missed_bytes, sum(size for _, size in c.trace)) for c in groups[""]]
    context.note("by trace", "; ".join("missed {} of {} requests, {} of {} bytes".format(*part) for part in parts))
    return rewards


def make_room(candidate, context, caches, step, held_out):
    """Let the candidate choose the objects that leave each of the caches."""
    offers = [cache.offer(step) for cache in caches]
    answers = candidate.call("evict", offers, held_out=held_out).unwrap()
    if not isinstance(answers, list) or len(answers) != len(offers):
        context.invalid(f"evict: expected a list of {len(offers)} lists of positions, one for each cache")
    for cache, answer in zip(caches, answers, strict=True):
        if not cache.evict(answer):
            context.invalid("evict: expected positions of objects that free enough room")
