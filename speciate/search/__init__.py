"""How a population is searched: pure, seeded, stateless between calls."""
