"""Dashboard pages: complete without JavaScript, live with it (ADR 16)."""
