"""Tasks of arXiv 2605.22817 on public datasets, for ``--task experiments.datasets.musique:task`` and its siblings."""
