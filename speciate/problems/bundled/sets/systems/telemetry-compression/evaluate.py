"""Count the bits of a lossless code: the candidate predicts each value, and the evaluator codes the error.

The error is coded with a Rice code (Rice 1979), whose parameter the candidate chooses too. The decoder makes the same
predictions from the same past values, so that nothing else has to be stored. The series of a group advance together,
those that are held out last.
"""

import math
import random

LENGTH = 200
SHOWN = 12
LONGEST = 24
LARGEST = 10**12
SERIES = 4
FAMILIES = ("counter", "gauge", "latency")
SEEDS = {"": 100, "held_out_": 200}


def series_of(family, seed):
    """Return the whole numbers of a series."""
    rng = random.Random(seed)
    if family == "counter":
        return counter(rng)
    return gauge(rng) if family == "gauge" else latency(rng)


def counter(rng):
    """Return a counter: its rate is nearly constant and sometimes changes, and it is read at uneven times."""
    rate, total, values = 50 + 400 * rng.random(), 10**6 * rng.random(), []
    for _ in range(LENGTH):
        if rng.random() < 0.02:
            rate = 50 + 400 * rng.random()
        total += rate * (1 + 0.02 * normal(rng))
        values.append(round(total))
    return values


def gauge(rng):
    """Return a gauge: a smooth wave with small noise."""
    period, height, phase = 20 + 60 * rng.random(), 200 + 800 * rng.random(), rng.random()
    noise = 1 + 4 * rng.random()
    wave = [height * math.sin(2 * math.pi * (i / period + phase)) for i in range(LENGTH)]
    return [round(5000 + w + noise * normal(rng)) for w in wave]


def latency(rng):
    """Return latencies: noise around a level, with rare large values."""
    level, spread, values = 100 + 300 * rng.random(), 4 + 20 * rng.random(), []
    for _ in range(LENGTH):
        peak = 3000 * rng.random() if rng.random() < 0.04 else 0
        values.append(max(0, round(level + spread * normal(rng) + peak)))
    return values


def normal(rng):
    """Return a normal number."""
    return math.sqrt(-2 * math.log(1 - rng.random())) * math.cos(2 * math.pi * rng.random())


TRACES = {
    prefix: [series_of(family, start + 10 * i + k) for i, family in enumerate(FAMILIES) for k in range(SERIES)]
    for prefix, start in SEEDS.items()
}


def evaluate(candidate, context):
    """Return the bits per value of each family."""
    rewards = {}
    for prefix, series in TRACES.items():
        bits = [0] * len(series)
        for step in range(2, LENGTH):
            offers = [values[max(0, step - SHOWN) : step] for values in series]
            answers = candidate.call("predict", offers, held_out=bool(prefix)).unwrap()
            if not isinstance(answers, list) or len(answers) != len(offers):
                context.invalid(f"predict: expected a list of {len(offers)} pairs, one for each series")
            for i, answer in enumerate(answers):
                bits[i] += length(answer, series[i][step], context)
        for i, family in enumerate(FAMILIES):
            own = bits[SERIES * i :][:SERIES]
            rewards[f"{prefix}{family}_bits"] = round(sum(own) / SERIES / (LENGTH - 2), 6)
            if not prefix:
                by_series = [round(total / (LENGTH - 2), 2) for total in own]
                context.note(f"{family} bits by series", str(by_series))
    return rewards


def length(answer, value, context):
    """Return the bits of a value for a pair [prediction, parameter]."""
    if not isinstance(answer, list) or len(answer) != 2 or not all(type(x) is int for x in answer):
        context.invalid("predict: expected pairs of whole numbers, [prediction, parameter]")
    guess, parameter = answer
    if abs(guess) > LARGEST or not 0 <= parameter <= 30:
        context.invalid("predict: expected a prediction up to 10^12 and a parameter from 0 to 30")
    error = value - guess
    folded = 2 * error if error >= 0 else -2 * error - 1
    quotient = folded >> parameter
    # A long quotient is replaced by a mark and the folded error in 41 bits.
    return quotient + 1 + parameter if quotient < LONGEST else LONGEST + 41
