"""The last value, and one parameter for all."""


# EVOLVE-BLOCK-START
def guess(past):
    """Return the prediction of the next value and the parameter of the code; the last of ``past`` is the newest."""
    value = past[-1]
    parameter = 8.0
    return value, parameter


def predict(series):
    """Return a pair of whole numbers for each series."""
    found = [guess(past) for past in series]
    return [[round(value), min(max(round(parameter), 0), 30)] for value, parameter in found]


# EVOLVE-BLOCK-END
