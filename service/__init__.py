"""The API process: REST, server-sent events and, later, the dashboard, over the stores of ``speciate.storage``."""
