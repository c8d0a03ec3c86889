"""Use cases over ports: start, generate, evaluate, confirm, steer, replay."""
