"""``python -m speciate.cli``: the command line of this very interpreter."""

from speciate.cli import main

main()
