"""Pack instances of several families online: the candidate chooses a bin for one item at a time.

The candidate never receives an item before it has placed the previous one, and the evaluator keeps the bins. A program
therefore cannot look ahead or miscount its bins. All instances advance together, which costs one call per step instead
of one per item and reveals no later item of an instance.
"""

import json


def evaluate(candidate, context):
    """Return, for each family, the excess of used bins over their lower bound, in percent."""
    families = json.loads(context.files["instances.json"])
    packings = {
        name: [Packing(instance, family["capacity"]) for instance in family["instances"]]
        for name, family in families.items()
    }
    everything = [packing for family in packings.values() for packing in family]
    for step in range(max(len(packing.items) for packing in everything)):
        advance(candidate, context, [packing for packing in everything if step < len(packing.items)], step)
    for name, family in packings.items():
        context.note(name, f"bins used {[len(p.rooms) for p in family]}, at least {[p.lower_bound for p in family]}")
    return {f"excess_{name}": excess_percent(family) for name, family in packings.items()}


class Packing:
    """State of one instance: its items, and the room left in every open bin."""

    def __init__(self, instance, capacity):
        self.items = instance["items"]
        self.lower_bound = instance["lower_bound"]
        self.capacity = capacity
        self.rooms = []
        self.offered = []

    def offer(self, step):
        """Return the item and the room of every bin that it fits in: open bins in their order, then an empty one."""
        item = self.items[step]
        self.offered = [bin_ for bin_, room in enumerate(self.rooms) if room >= item]
        return [item, [*(self.rooms[bin_] for bin_ in self.offered), self.capacity]]

    def place(self, step, choice):
        """Put the item into the offered bin at this position."""
        if choice == len(self.offered):
            self.rooms.append(self.capacity - self.items[step])
        else:
            self.rooms[self.offered[choice]] -= self.items[step]


def advance(candidate, context, packings, step):
    """Let the candidate place the next item of every instance."""
    offers = [packing.offer(step) for packing in packings]
    choices = candidate.call("choose", offers).unwrap()
    if not isinstance(choices, list) or len(choices) != len(offers):
        context.invalid(f"choose: expected a list of {len(offers)} positions, one for each offer")
    for packing, choice, (_, rooms) in zip(packings, choices, offers, strict=True):
        if type(choice) is not int or not 0 <= choice < len(rooms):
            context.invalid(f"choose: expected a position from 0 to {len(rooms) - 1} among the offered bins")
        packing.place(step, choice)


def excess_percent(family):
    """Return the mean excess of a family over its lower bounds, in percent."""
    # Rounded, because sums of such fractions are inexact: 11.500000000000004 would not meet "at most 11.5".
    return round(100 * sum(len(p.rooms) / p.lower_bound - 1 for p in family) / len(family), 9)
