"""The scalar that the peers maximize; needs nothing but the standard library, for the peers' Python."""

from __future__ import annotations

from collections.abc import Mapping


def score(rewards: Mapping[str, float], objectives: Mapping[str, Mapping[str, float]]) -> float:
    """Return the mean of the normalized objectives, at least 0 and not clipped above.

    Args:
        rewards: Rewards by name.
        objectives: For each name ``low`` and ``high``, the worse and the better end of the range, or ``limit`` alone
            for a constraint that is at most that.

    Returns:
        Higher is better; a tenth of it if a constraint is violated.
    """
    parts, feasible = [], True
    for name, ends in objectives.items():
        if "limit" in ends:
            feasible = feasible and rewards[name] <= ends["limit"]
        else:
            parts.append((rewards[name] - ends["low"]) / (ends["high"] - ends["low"]))
    mean = sum(max(part, 0.0) for part in parts) / len(parts)
    return mean if feasible else mean / 10
