"""Access control: projects, tokens, quotas, rate limits, secrets and the audit log."""
