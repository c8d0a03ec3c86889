"""``speciate serve``: serve small policies on the CPU with vLLM-compatible routes, without torch."""

import os
from pathlib import Path
from typing import Annotated

import typer

from speciate.cli.common import command, command_group
from speciate.cli.output import console, sanitize
from speciate.cli.up import StopRequested, stop_on_signals
from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.local_ports import listening
from speciate.settings import KEEP_ALIVE_S, SERVE_TOKEN_VARIABLE, http_address, is_loopback, load_settings, secret_of

app = command_group()


@command(
    app,
    "serve",
    "speciate serve",
    "speciate serve smollm2-135m",
    "speciate serve ./checkpoints/maze-vpo",
    "speciate serve vpo=./a grpo=./b --port 0",
    has_json=False,
)
def serve_command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=DIR | DIR | MODEL]…",
            help="Checkpoint directories, or downloaded models (default: the bundled policies, each of which is loaded"
            " when it is first requested).",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback requires a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 selects a free one.", min=0, max=65535)] = 8008,
    learned: Annotated[
        Path | None,
        typer.Option(help="Folder of the versions that runs learn; each is loaded when it is first requested."),
    ] = None,
) -> None:
    """Serve small policies (LLaMA or Qwen2, up to about 150 million parameters) on the CPU until Ctrl-C.

    The routes are compatible with vLLM: register a policy of kind openai_compatible with the printed URL. If
    SPECIATE_SERVE_TOKEN is set, requests must send that token.
    """
    token = _token(host)
    # One thread: with matrices this small, more only take CPU from evaluators. Set before numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    folders = named_folders(models or [], load_settings().data_dir)
    with stop_on_signals():
        try:
            _serve(folders, host, port, token, learned, waiting=not models)
        except StopRequested:
            console(stderr=True).print("Stopping …")


def named_folders(models: list[str], data_dir: Path) -> dict[str, Path]:
    if not models:
        from speciate.policies.bundled import checkpoints

        if bundled := checkpoints():
            return bundled
        raise InvalidInputError(
            "no checkpoint is bundled with this installation.", remedy="Pass the directory of a checkpoint."
        )
    folders: dict[str, Path] = {}
    for model in models:
        before, equals, after = ("", "", model) if Path(model).is_dir() else model.partition("=")
        folder = _folder(after if equals else model, data_dir)
        name = before if equals else folder.name
        if not name or name in folders:
            raise InvalidInputError(f"{model!r}: the model name {name!r} is empty or repeated.", remedy="Use NAME=DIR.")
        folders[name] = folder
    return folders


def _folder(place: str, data_dir: Path) -> Path:
    from speciate.inference.downloads.catalogue import CATALOGUE, folder_of

    folder = Path(os.path.expanduser(place)).absolute()  # noqa: PTH111 - it keeps the ~ of an unknown home
    return folder_of(place, data_dir) if place in CATALOGUE and not folder.is_dir() else folder


def _token(host: str) -> str | None:
    token = secret_of(SERVE_TOKEN_VARIABLE)
    if token is not None and not token.strip():
        raise ConfigurationError(
            f"{SERVE_TOKEN_VARIABLE} is empty.", remedy="Set it to a long random text, or unset it."
        )
    if token is None and not is_loopback(host):
        raise ConfigurationError(
            f"listening on {host} requires a token.",
            remedy=f"Set {SERVE_TOKEN_VARIABLE} to a long random text (`openssl rand -hex 32`), or listen on"
            " 127.0.0.1.",
        )
    return token


def _serve(
    folders: dict[str, Path], host: str, port: int, token: str | None, learned: Path | None, *, waiting: bool
) -> None:
    import uvicorn

    from speciate.http_server import HttpServer
    from speciate.inference.app import create_app
    from speciate.priority import lower_priority

    out, settings = console(stderr=True), load_settings()
    # Listen first: a run that a restarted service resumes would pause if its requests were refused.
    with listening(host, port, "the server") as listener:
        with out.status("Reading checkpoints …"):
            app = create_app(folders, token=token, learned=learned, waiting=waiting, rest_s=settings.rest_s)
        lower_priority(settings.work_nice)  # after the start, for which others wait
        base_url = f"{http_address(host, listener.getsockname()[1])}/v1"
        out.print(f"Serving {sanitize(', '.join(folders))} at {base_url} (Ctrl-C stops it).", soft_wrap=True)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=3,
        )
        HttpServer(config).run(sockets=[listener])
