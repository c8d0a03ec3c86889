"""``speciate cache``: what Redis keeps and PostgreSQL can give back."""

from __future__ import annotations

from speciate.cli import output
from speciate.cli.session import AsJson, examples, noun

app = noun("The cache in Redis. PostgreSQL is the truth; the cache can be lost and made again at any time.")


@app.callback()
def _group() -> None:
    """The cache in Redis. PostgreSQL is the truth; the cache can be lost and made again at any time."""


@app.command(
    "rebuild",
    epilog=examples("SPECIATE_DATABASE_URL=postgresql://… SPECIATE_REDIS_URL=redis://… speciate cache rebuild"),
)
def rebuild(as_json: AsJson = False) -> None:
    """Make the archive of every unfinished run anew from PostgreSQL. Runs may go on meanwhile.

    Needs SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL: it speaks with the servers, not with the service.
    """
    from speciate.cli.rebuilding import rebuild_cache
    from speciate.settings import load_settings
    from speciate.storage.plane import open_plane

    plane = open_plane(load_settings())
    try:
        rebuilt = rebuild_cache(plane)
    finally:
        plane.close()
    if as_json:
        output.json_line(rebuilt.as_json())
    else:
        output.say(f"{rebuilt.runs:,} unfinished runs, {rebuilt.elites:,} elites rebuilt.")
