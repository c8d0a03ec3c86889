"""``python -m speciate.cli``."""

from speciate.cli import main

main()
