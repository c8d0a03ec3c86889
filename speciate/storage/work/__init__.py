"""Work units: leases, fenced commits, the reconciler, and a store in memory."""
