"""Types of arrays, and numpy, which is imported at its first use: a process that does not compute imports none."""

from typing import TYPE_CHECKING, Any

from speciate.domain.lazy import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]
else:
    np = LazyModule("numpy")
    FloatArray = IntArray = BoolArray = Any

__all__ = ["BoolArray", "FloatArray", "IntArray", "np"]
