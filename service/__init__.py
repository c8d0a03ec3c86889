"""The API process: REST API, event streams and dashboards."""
