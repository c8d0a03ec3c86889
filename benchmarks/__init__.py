"""Measurements, side by side in one run: ``make bench``. Nothing here is a test and nothing asserts a time."""

import os

# One thread of BLAS for each process, as where the service starts its own: set before numpy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
