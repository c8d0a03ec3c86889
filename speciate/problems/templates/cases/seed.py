"""Only add digits. Search changes what stands between the two marks."""


# EVOLVE-BLOCK-START
def solve(n):
    text = ""
    for digit, value in zip("MDCLXVI", (1000, 500, 100, 50, 10, 5, 1), strict=True):
        text += n // value * digit
        n %= value
    return text


# EVOLVE-BLOCK-END
