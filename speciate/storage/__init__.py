"""PostgreSQL is the truth, Redis a cache and a broker; ``memory`` is both for tests and replays."""
