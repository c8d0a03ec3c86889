"""Run engines, which are search programs of others, on runs whose candidates they propose."""
