"""Entry point of ``python -m experiments.peers``."""

from experiments.peers.command import main

raise SystemExit(main())
