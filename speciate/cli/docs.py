"""``speciate docs``: the guides, shown by a running service or as files."""

import webbrowser

from speciate.cli import output
from speciate.cli.common import client, command, command_group
from speciate.domain.errors import SpeciateError
from speciate.process_roots import DOCS

app = command_group()


@command(app, "docs", "speciate docs", has_json=False)
def docs() -> None:
    """Open the documentation in a browser and print its address.

    Without a service, print the folder of its files.
    """
    try:
        service = client()
        address = "" if service.in_process else f"{service.url}/docs"
        if address:
            service.ready()
    except SpeciateError:
        address = ""
    output.print_line(address or str(DOCS))
    if address:
        webbrowser.open(address)
