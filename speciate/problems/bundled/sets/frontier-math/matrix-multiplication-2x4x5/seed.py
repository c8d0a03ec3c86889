"""The plain algorithm: one product for every pair of entries that meet."""

N, M, P = 2, 4, 5


# EVOLVE-BLOCK-START
def products():
    """Return the products [u, v, w]."""
    found = []
    for i in range(N):
        for j in range(M):
            for k in range(P):
                u, v, w = [0] * (N * M), [0] * (M * P), [0] * (N * P)
                u[i * M + j] = 1
                v[j * P + k] = 1
                w[i * P + k] = 1
                found.append([u, v, w])
    return found


# EVOLVE-BLOCK-END


def solve():
    return products()
