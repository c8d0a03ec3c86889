"""Webhooks and the queue of their deliveries."""
