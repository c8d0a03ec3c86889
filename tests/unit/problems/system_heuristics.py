"""Known heuristics for the problems of the set ``systems``, as replacements of functions of the seed programs."""

from __future__ import annotations

from typing import Final

BALANCED: Final = """
def copies_of(loads):
    mean = [sum(column) / len(loads) for column in zip(*loads)]
    copies = [1] * EXPERTS
    for _ in range(DEVICES * SLOTS - EXPERTS):
        copies[max(range(EXPERTS), key=lambda e: mean[e] / copies[e] if copies[e] < DEVICES else -1)] += 1
    return copies


def assign(loads, copies, placed):
    mean = [sum(column) / len(loads) for column in zip(*loads)]
    share = [mean[e] / copies[e] for e in range(EXPERTS)]
    devices, work = [[] for _ in range(DEVICES)], [0.0] * DEVICES
    for e in sorted((e for e in range(EXPERTS) for _ in range(copies[e])), key=lambda e: -share[e]):
        free = [d for d in range(DEVICES) if len(devices[d]) < SLOTS and e not in devices[d]]
        if free:
            d = min(free, key=work.__getitem__)
            devices[d].append(e)
            work[d] += share[e]
    return devices
"""
"""Replicate the experts with the highest load per copy, then place the heaviest copies first (LPT, Graham 1969)."""

HEURISTICS: Final[dict[str, dict[str, str]]] = {
    "cache-eviction": {
        "lru": "def score(size, since_use, since_insertion, uses):\n    return since_use",
        "lfu": "def score(size, since_use, since_insertion, uses):\n    return -uses",
        # Hyperbolic caching (Blankstein, Sen and Freedman 2017), per unit of size.
        "hyperbolic": "def score(size, since_use, since_insertion, uses):\n    return since_insertion * size / uses",
        "lfu_size": "def score(size, since_use, since_insertion, uses):\n    return size / uses",
        # GreedyDual-Size-Frequency (Cherkasova 1998) with the recency in place of its clock.
        "gdsf": "def score(size, since_use, since_insertion, uses):\n    return size * since_use**0.5 / uses**2",
    },
    "job-scheduling": {
        "shortest": "def urgency(waited, duration, left, length):\n    return -duration",
        "earliest_deadline": "def urgency(waited, duration, left, length):\n    return -left",
        # Highest response ratio next (Brinch Hansen 1971).
        "response_ratio": "def urgency(waited, duration, left, length):\n    return waited / duration",
        # Apparent tardiness cost (Vepsalainen and Morton 1987); late jobs last, but not for ever.
        "tardiness": (
            "import math\n"
            "def urgency(waited, duration, left, length):\n"
            "    slack = left - duration\n"
            "    if slack < 0:\n"
            "        return 0.05 * waited / duration\n"
            "    return math.exp(-slack / 12) / duration + 0.002 * waited"
        ),
    },
    "expert-placement": {
        "balanced": BALANCED,
        # Place again only if the present placement would be out of balance: moving an expert costs time.
        "lazy": BALANCED
        + """
placement_of = assign


def assign(loads, copies, placed):
    counts = [sum(e in device for device in placed) for e in range(EXPERTS)]
    work = [sum(loads[-1][e] / counts[e] for e in device) for device in placed]
    return placed if max(work) * DEVICES < 1.3 * sum(work) else placement_of(loads, copies, placed)
""",
    },
    "spot-instances": {
        # Wait for spot instances while there is slack, then change to on-demand ones for good.
        "greedy": """
def instance(work, ticks, present, starting, available):
    if ticks <= work + 3:
        return 2
    return 1 if available[-1] else 0
""",
        # Never idle: the earliest finish that spot instances allow.
        "eager": """
def instance(work, ticks, present, starting, available):
    return 1 if all(available[-3:]) and ticks > work + 3 else 2
""",
        # Uniform progress (Wu et al., NSDI 2024): on demand whenever the job is behind an even schedule.
        "uniform_progress": """
def instance(work, ticks, present, starting, available):
    if ticks <= work + 3:
        return 2
    if available[-1] and (present != 2 or work * 72 < ticks * 46):
        return 1
    behind = 48 - work < (72 - ticks) * 48 / 72
    return 2 if behind or (present == 2 and 48 - work < (72 - ticks) * 48 / 72 + 2) else 0
""",
    },
    "telemetry-compression": {
        # The last value, with a parameter that adapts to recent errors, as in lossless JPEG (Weinberger et al. 2000).
        "adaptive": """
def guess(past):
    errors = [abs(b - a) for a, b in zip(past, past[1:])]
    mean = sum(errors) / len(errors)
    return past[-1], max(mean, 1).__int__().bit_length()
""",
        # The best of fixed predictors on the recent values, as in Shorten (Robinson 1994) and FLAC.
        "fixed_predictors": """
def guess(past):
    def level(p):
        return sorted(p)[len(p) // 2]

    def last(p):
        return p[-1]

    def line(p):
        return 2 * p[-1] - p[-2]

    def steady(p):
        rises = sorted(b - a for a, b in zip(p, p[1:]))
        return p[-1] + rises[len(rises) // 2]

    best = None
    for f in (last, line, steady, level):
        errors = [abs(past[i] - f(past[:i])) for i in range(2, len(past))] or [256]
        cost = sum(sorted(errors)[: max(1, len(errors) - 1)])
        if best is None or cost < best[0]:
            best = cost, f(past), sorted(errors)[len(errors) // 2]
    return best[1], max(int(best[2] * 1.5), 1).bit_length()
""",
    },
}
"""For each problem the source of functions, by name of the heuristic."""
