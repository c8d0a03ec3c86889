"""Simulate the experts of a mixture-of-experts model on devices: the candidate places them before every step.

The candidate sees the loads of past steps only. The traces of a group advance together, those that are held out last.
"""

import math
import random

EXPERTS = 32
DEVICES = 8
SLOTS = 5
STEPS = 30
SHOWN = 4
TRAIN = ((51, 0.02, 0.0), (52, 0.15, 0.0), (53, 0.05, 0.1))
HELD_OUT = ((61, 0.02, 0.0), (62, 0.15, 0.0), (63, 0.05, 0.1))
"""Seed, drift of the loads per step, and probability that the roles of experts change."""


def loads_of(seed, drift, change):
    """Return the loads of all experts at each step; they sum to 1,000 at every step."""
    rng = random.Random(seed)
    levels = [normal(rng) for _ in range(EXPERTS)]
    steps = []
    for _ in range(STEPS + SHOWN):
        if rng.random() < change:
            levels = sorted(levels, key=lambda _: rng.random())
        levels = [0.995 * level + drift * normal(rng) for level in levels]
        raw = [math.exp(level + 0.05 * normal(rng)) for level in levels]
        steps.append([round(1000 * load / math.fsum(raw), 3) for load in raw])
    return steps


def normal(rng):
    """Return a normal number."""
    return math.sqrt(-2 * math.log(1 - rng.random())) * math.cos(2 * math.pi * rng.random())


TRACES = {"": [loads_of(*each) for each in TRAIN], "held_out_": [loads_of(*each) for each in HELD_OUT]}
START = [[device * 4 + i for i in range(4)] for device in range(DEVICES)]


class Model:
    """A model that serves one trace."""

    def __init__(self, loads):
        self.loads = loads
        self.placed = START
        self.imbalances = []
        self.moved = 0

    def offer(self, step):
        """Return the loads of the last steps, oldest first, and the present placement."""
        return [self.loads[step : step + SHOWN], self.placed]

    def place(self, step, placement):
        """Use a placement for the next step."""
        self.moved += sum(len(set(new) - set(old)) for new, old in zip(placement, self.placed, strict=True))
        self.placed = placement
        copies = [0] * EXPERTS
        for device in placement:
            for expert in device:
                copies[expert] += 1
        loads = self.loads[step + SHOWN]
        work = [math.fsum(loads[expert] / copies[expert] for expert in device) for device in placement]
        self.imbalances.append(max(work) * DEVICES / math.fsum(loads))


def evaluate(candidate, context):
    """Return the mean imbalance and the experts loaded per step."""
    groups = {prefix: [Model(loads) for loads in traces] for prefix, traces in TRACES.items()}
    for prefix, models in groups.items():
        for step in range(STEPS):
            offers = [model.offer(step) for model in models]
            placements = candidate.call("place", offers, held_out=bool(prefix)).unwrap()
            if not isinstance(placements, list) or len(placements) != len(models):
                context.invalid(f"place: expected a list of {len(models)} placements")
            for model, placement in zip(models, placements, strict=True):
                if reason := malformed(placement):
                    context.invalid(f"place: {reason}")
                model.place(step, placement)
    rewards = {}
    for prefix, group in groups.items():
        steps = len(group) * STEPS
        rewards[f"{prefix}imbalance"] = round(math.fsum(i for model in group for i in model.imbalances) / steps, 6)
        rewards[f"{prefix}moved"] = round(sum(model.moved for model in group) / steps, 6)
    parts = [(math.fsum(model.imbalances) / STEPS, model.moved / STEPS) for model in groups[""]]
    context.note("by trace", "; ".join("imbalance {:.3f}, moved {:.2f}".format(*part) for part in parts))
    return rewards


def malformed(placement):
    """Return the reason why a value is not a placement, or None."""
    if not isinstance(placement, list) or len(placement) != DEVICES:
        return f"expected {DEVICES} devices"
    for device in placement:
        if not isinstance(device, list) or len(device) > SLOTS or len(set(map(repr, device))) != len(device):
            return f"expected at most {SLOTS} different experts on a device"
        if not all(type(expert) is int and 0 <= expert < EXPERTS for expert in device):
            return f"expected experts from 0 to {EXPERTS - 1}"
    if len({expert for device in placement for expert in device}) != EXPERTS:
        return "every expert must be on a device"
    return None
