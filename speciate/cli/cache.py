"""``speciate cache``: what Redis keeps and PostgreSQL can give back."""

from __future__ import annotations

from speciate.cli import output
from speciate.cli.session import AsJson, DataDir, examples, noun

app = noun("The cache in Redis. PostgreSQL is the truth; the cache can be lost and made again at any time.")


@app.callback()
def _group() -> None:
    """The cache in Redis. PostgreSQL is the truth; the cache can be lost and made again at any time."""


@app.command(
    "rebuild",
    epilog=examples(
        "speciate cache rebuild",
        "SPECIATE_DATABASE_URL=postgresql://… SPECIATE_REDIS_URL=redis://… speciate cache rebuild",
    ),
)
def rebuild(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Make the archive of every unfinished run anew from PostgreSQL. Runs may go on meanwhile.

    It speaks with the servers, not with the service: those of a running `speciate up`, or those that
    SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL name.
    """
    from speciate.cli.attached import attached_stores
    from speciate.cli.rebuilding import rebuild_cache

    with attached_stores(data_dir) as stores:
        rebuilt = rebuild_cache(stores)
    if as_json:
        output.json_line(rebuilt.as_json())
    else:
        output.say(f"{output.many(rebuilt.runs, 'unfinished run')}, {output.many(rebuilt.elites, 'elite')} rebuilt.")
