"""Entry point of ``python -m experiments.reproduction``; spawned processes cannot import functions from this file."""

from experiments.reproduction.pipeline import main

raise SystemExit(main())
