"""Best fit, written as a table: the score of a bin depends on how much room the item would leave."""


# EVOLVE-BLOCK-START
def priority(item, rooms):
    table = [6.0, 5.5, 5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5]
    scores = []
    for room in rooms:
        gap = 100 * (room - item) / rooms[-1]
        bucket = int(gap * 0.4)
        score = table[min(bucket, 11)] - 0.01 * gap
        scores.append(score)
    return scores


# EVOLVE-BLOCK-END


def choose(offers):
    """Return, for each `[item, rooms]`, the position of the bin with the highest priority, the first one of equals."""
    choices = []
    for item, rooms in offers:
        scores = priority(item, rooms)
        choices.append(max(range(len(rooms)), key=scores.__getitem__))
    return choices
