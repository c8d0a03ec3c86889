"""ASGI middleware: metrics, access control, limits and security headers."""
