"""Write the data files of the bundled problems: ``points.json`` and ``instances.json``.

``points.json`` holds a law of physics, sampled in three regions of its inputs. ``instances.json`` holds seeded
instances drawn as those of the OR-Library and of FunSearch's Weibull set:

- ``or1`` is drawn as the OR-Library's u120 class (Falkenauer 1996): whole numbers from 20 to 100, bins of 150.
- ``triplet`` is drawn as its t120 class: bins of 1000, each filled exactly by three items, one of 380 to 490 and two
  that share the rest with at least 250 each; the items come in random order.
- ``weibull`` draws 45 times a Weibull variable of shape 3, rounded and kept within 1 to 100, for bins of 100
  (Castiñeiras, De Cauwer and O'Sullivan 2012, and FunSearch).

The instances are new draws, not the published files, so published scores are comparable in level but not exactly.

Usage: ``python scripts/generate_problem_data.py``
"""

import json
import random
import runpy
from pathlib import Path

BUNDLED = Path(__file__).resolve().parents[1] / "speciate" / "problems" / "bundled"

REGIONS = {
    "planck-radiation": (41_16, {"low": (0.02, 0.2), "middle": (0.5, 3.0), "high": (4.0, 12.0)}),
    "relativistic-energy": (48_02, {"slow": (0.05, 0.3), "fast": (0.4, 0.8), "extreme": (0.9, 0.999)}),
}
"""Seed, and bounds of the regions in the units of the problem's ``law.py``."""

SEED = 20_24
ITEMS = 120


def lower_bound(items, capacity):
    """Return the bound L2 of Martello and Toth (1990): no packing uses fewer bins.

    For a threshold t, items above capacity - t need a bin each, where no item of size t or more fits beside them. Items
    above half the capacity need a bin each, too. Remaining items that do not fit beside those need further bins by
    volume.
    """
    best = 0
    for t in sorted({0, *(item for item in items if item <= capacity // 2)}):
        alone = [item for item in items if item > capacity - t]
        large = [item for item in items if capacity / 2 < item <= capacity - t]
        small = [item for item in items if t <= item <= capacity / 2]
        overflow = sum(small) - (len(large) * capacity - sum(large))
        best = max(best, len(alone) + len(large) + max(0, -(-overflow // capacity)))
    return best


def uniform(rng):
    """Return the sizes of an instance of ``or1``."""
    return [rng.randint(20, 100) for _ in range(ITEMS)]


def triplets(rng):
    """Return the sizes of an instance of ``triplet``."""
    items = []
    for _ in range(ITEMS // 3):
        large = rng.randint(380, 490)
        middle = rng.randint(250, (1000 - large) // 2)
        items += [large, middle, 1000 - large - middle]
    rng.shuffle(items)
    return items


def weibull(rng):
    """Return the sizes of an instance of ``weibull``."""
    return [min(100, max(1, round(rng.weibullvariate(45, 3)))) for _ in range(ITEMS)]


FAMILIES = {"or1": (uniform, 150, 8), "triplet": (triplets, 1000, 5), "weibull": (weibull, 100, 6)}
"""Function that draws the items, capacity of a bin, and number of instances."""


def instances():
    """Return all families by name: capacity and instances, each with its items and lower bound."""
    rng = random.Random(SEED)  # noqa: S311  # instances are to be the same everywhere, not secret
    families = {}
    for name, (draw, capacity, count) in FAMILIES.items():
        drawn = [draw(rng) for _ in range(count)]
        families[name] = {
            "capacity": capacity,
            "instances": [{"items": items, "lower_bound": lower_bound(items, capacity)} for items in drawn],
        }
    return families


def regions(slug):
    """Return the inputs, shape (20, n_inputs), and outputs, shape (20,), of each region of a problem with a law."""
    made = runpy.run_path(str(BUNDLED / slug / "law.py"))
    seed, bounds = REGIONS[slug]
    rng = random.Random(seed)  # noqa: S311  # points are to be the same everywhere, not secret
    sampled = {}
    for name, (low, high) in bounds.items():
        inputs = made["sample"](rng, low, high)
        sampled[name] = {"inputs": inputs, "outputs": [made["law"](*point) for point in inputs]}
    return sampled


def data_files():
    """Return the content of every data file, by path."""
    files = {BUNDLED / slug / "points.json": regions(slug) for slug in REGIONS}
    return files | {BUNDLED / "online-bin-packing" / "instances.json": instances()}


if __name__ == "__main__":
    for path, content in data_files().items():
        path.write_text(json.dumps(content) + "\n")
