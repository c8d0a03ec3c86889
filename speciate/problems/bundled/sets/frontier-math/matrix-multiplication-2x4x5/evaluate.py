"""Score an algorithm for matrix multiplication as a decomposition of its tensor, in exact arithmetic."""

import numpy as np

N, M, P = 2, 4, 5
MOST = 60
LARGEST = 100


def evaluate(candidate, context):
    """Return the rewards of the products that ``solve()`` returns."""
    products = candidate.call("solve").unwrap()
    if not isinstance(products, list) or not 1 <= len(products) <= MOST:
        context.invalid(f"expected a list of 1 to {MOST} products")
    sizes = (N * M, M * P, N * P)
    for r, product in enumerate(products):
        if not isinstance(product, list) or len(product) != 3:
            context.invalid(f"product {r}: expected [u, v, w]")
        for part, size in zip(product, sizes, strict=False):
            if not isinstance(part, list) or len(part) != size or not all(is_half(x) for x in part):
                context.invalid(f"product {r}: expected {size} multiples of 1/2 up to {LARGEST}")
    # Doubled, so that all entries are whole numbers and the sums are exact.
    u, v, w = (np.array([[round(2 * x) for x in p[k]] for p in products], dtype=np.int64) for k in range(3))
    found = np.einsum("ri,rj,rk->ijk", u, v, w)
    wrong = int((found != 8 * tensor()).sum())
    nonzeros = int((u != 0).sum() + (v != 0).sum() + (w != 0).sum())
    context.note("output", str(products))
    context.note("algorithm", f"{len(products)} products, {wrong} wrong coefficients")
    return {"rank": len(products), "nonzeros": nonzeros, "wrong": wrong}


def tensor():
    """Return the tensor of the multiplication, shape (N M, M P, N P)."""
    made = np.zeros((N * M, M * P, N * P), dtype=np.int64)
    for i in range(N):
        for j in range(M):
            for k in range(P):
                made[i * M + j, j * P + k, i * P + k] = 1
    return made


def is_half(value):
    """Return True if a value is a multiple of 1/2 within the limit."""
    return type(value) in (int, float) and abs(value) <= LARGEST and 2 * value == round(2 * value)
