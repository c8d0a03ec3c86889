"""Charts: one module per group of charts, pure functions of the data read."""
