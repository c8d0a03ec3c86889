"""Experts in order of their numbers, the first ones twice."""

EXPERTS, DEVICES, SLOTS = 32, 8, 5


# EVOLVE-BLOCK-START
def copies_of(loads):
    """Return how often each expert is wanted; the last of the recent loads is the newest."""
    newest = loads[-1]
    return [1 + (expert < 8) for expert in range(len(newest))]


def assign(loads, copies, placed):
    """Return the experts of each device."""
    wanted = [expert for expert in range(EXPERTS) for _ in range(copies[expert])]
    devices = [[] for _ in range(DEVICES)]
    for i, expert in enumerate(wanted):
        devices[i % DEVICES].append(expert)
    return devices


def place(models):
    """Return a placement for each model; experts that do not fit go where there is room."""
    return [repaired(assign(loads, copies_of(loads), placed)) for loads, placed in models]


# EVOLVE-BLOCK-END


def repaired(devices):
    devices = [list(dict.fromkeys(device))[:SLOTS] for device in devices]
    counts = [sum(expert in device for device in devices) for expert in range(EXPERTS)]
    for expert in range(EXPERTS):
        if not counts[expert]:
            free = min(devices, key=len)
            if len(free) == SLOTS:  # a second copy makes room
                free = next(device for device in devices if any(counts[other] > 1 for other in device))
                gone = next(other for other in free if counts[other] > 1)
                free.remove(gone)
                counts[gone] -= 1
            free.append(expert)
            counts[expert] = 1
    return devices
