"""The dashboards: pages beside the REST surface, complete without JavaScript and live with it (ADR 16)."""
