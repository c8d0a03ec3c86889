"""Data files: folders, bytes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from speciate.domain.data_files import BINARY, bytes_of, content_of
from speciate.domain.errors import InvalidInputError
from speciate.problems.loader import load_problem
from tests.support.runs import toy_problem

TOML = """
slug = "a"
title = "A"
kind = "cases"
seed_program = "def solve(): return 1"
objectives = [{ name = "x" }]
targets = [{ name = "t", rule = "x >= 1", unlock = true }]
cases = [{ input = [], expected = 1 }]
data_files = ["points.csv", "images/"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problem.toml").write_text(TOML)
    (tmp_path / "points.csv").write_text("1,2\n")
    (tmp_path / "images" / "deep").mkdir(parents=True)
    (tmp_path / "images" / "a.bin").write_bytes(bytes(range(256)))
    (tmp_path / "images" / "deep" / "b.txt").write_text("ä")
    (tmp_path / "images" / ".hidden").write_text("no")
    return tmp_path


def test_folders_and_bytes_are_read(folder: Path) -> None:
    files = load_problem(folder).data_files
    assert {path: bytes_of(content) for path, content in files.items()} == {
        "points.csv": b"1,2\n",
        "images/a.bin": bytes(range(256)),
        "images/deep/b.txt": "ä".encode(),
    }
    assert files["images/deep/b.txt"] == "ä"


@pytest.mark.parametrize("data", [b"", b"text", b"\0", b"\xff", BINARY.encode(), BINARY.encode() + b"???"])
def test_every_content_comes_back(data: bytes) -> None:
    assert bytes_of(content_of(data)) == data
    assert "\0" not in content_of(data)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside.txt"])
def test_links_out_of_the_directory_are_refused(folder: Path, target: str) -> None:
    (folder.parent / "outside.txt").write_text("secret")
    (folder / "images" / "link").symlink_to(target)
    with pytest.raises(InvalidInputError, match="leads out of the directory"):
        load_problem(folder)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "data:;base64,???"}, "data file 'a' is no valid base64"),
        ({"a": "1", "a/b": "2"}, "'a' is also the folder of 'a/b'"),
        ({"../a": "1"}, "pattern"),
        ({"/a": "1"}, "pattern"),
        ({"a//b": "1"}, "pattern"),
        ({"a/../b": "1"}, "pattern"),
    ],
)
def test_wrong_paths_and_contents_are_refused(files: dict[str, str], message: str) -> None:
    problem = toy_problem()
    with pytest.raises(ValueError, match=message):
        type(problem).model_validate({**problem.model_dump(mode="json"), "data_files": files})
