"""Packages of a problem in a lock file beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from speciate.domain.errors import InvalidInputError
from speciate.problems.loader import load_problem
from tests.unit.problems.test_data_files import TOML

HASHES = [digit * 64 for digit in "ab"]
REQUIREMENTS = f"""\
# made by pip-compile
networkx==3.4 \\
    --hash=sha256:{HASHES[0]} \\
    --hash=sha256:{HASHES[1]}
    # via something
tomli==2.0 ; python_version < '3.11' --hash=sha256:{HASHES[0]}
"""
PYLOCK = f"""
lock-version = "1.0"
[[packages]]
name = "networkx"
version = "3.4"
[[packages.wheels]]
url = "https://files.example/networkx-3.4-py3-none-any.whl"
hashes = {{ sha256 = "{HASHES[0]}" }}
[[packages.wheels]]
url = "https://files.example/networkx-3.4-py2-none-any.whl"
hashes = {{ sha256 = "{HASHES[1]}" }}
[[packages]]
name = "tomli"
version = "2.0"
marker = "python_version < '3.11'"
wheels = [{{ name = "tomli.whl", hashes = {{ sha256 = "{HASHES[0]}" }} }}]
"""


def problem_with(folder: Path, name: str, text: str) -> tuple[str, ...]:
    (folder / "problem.toml").write_text(
        TOML.replace('data_files = ["points.csv", "images/"]', f'requirements = "{name}"')
    )
    (folder / name).write_text(text)
    return load_problem(folder).requirements


@pytest.mark.parametrize(("name", "text"), [("requirements.txt", REQUIREMENTS), ("pylock.toml", PYLOCK)])
def test_a_lock_file_gives_versions_markers_and_hashes(tmp_path: Path, name: str, text: str) -> None:
    assert problem_with(tmp_path, name, text) == (
        f"networkx==3.4 --hash=sha256:{HASHES[0]} --hash=sha256:{HASHES[1]}",
        f"tomli==2.0 ; python_version < '3.11' --hash=sha256:{HASHES[0]}",
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "requirements.txt",
            "-r other.txt\n",
            "'requirements.txt' has '-r other.txt': expected packages with versions",
        ),
        ("requirements.txt", "--index-url https://x.example\n", "expected packages with versions"),
        ("requirements.txt", "a @ file:///etc\n", "expected packages with versions"),
        ("requirements.txt", "a" + "==1 " * 40 + "@", "expected packages with versions"),  # in days, if read carelessly
        ("pylock.toml", "[[packages", "is not valid TOML"),
        ("pylock.toml", "packages = 3\n", "no list of packages"),
        ("pylock.toml", '[[packages]]\nname = "a"\nvcs = { url = "git+https://x" }\n', "locks 'a' without a version"),
        (
            "pylock.toml",
            '[[packages]]\nname = "a"\nversion = "1"\nsdist = { url = "x" }\n',
            "only wheels are installed",
        ),
        ("pylock.toml", '[[packages]]\nname = "a b"\nversion = "1"\nwheels = [{ url = "x" }]\n', "has 'a b==1'"),
        ("pylock.toml", '[[packages]]\nname = "a"\nversion = "1"\nwheels = [{hashes = {sha256 = "x"}}]\n', "has 'a==1"),
    ],
)
def test_anything_but_wheels_with_versions_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=r"problem\.toml:\d+ requirements") as refused:
        problem_with(tmp_path, name, text)
    assert message in str(refused.value)


def test_a_lock_file_is_beside_the_definition(tmp_path: Path) -> None:
    (tmp_path / "problem.toml").write_text(TOML.replace("data_files", "requirements = '../lock.txt'\ndata_files"))
    with pytest.raises(InvalidInputError, match=r"requirements: is '\.\./lock\.txt': expected the name of a file"):
        load_problem(tmp_path)
