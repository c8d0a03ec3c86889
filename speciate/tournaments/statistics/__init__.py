"""Statistics of paired comparisons over problems: pure functions of arrays."""
