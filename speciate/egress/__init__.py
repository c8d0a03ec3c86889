"""Outgoing requests: allowed networks, guarded transports, webhook delivery, and sealed secrets."""
