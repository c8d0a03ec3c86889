"""Packages of problems, built from wheels and archives in a local folder."""

import hashlib
import io
import os
import socket
import tarfile
import threading
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from evaluators.contained.tier_a import NAME as TIER_A
from evaluators.environments import EnvironmentStore
from evaluators.evaluator import SandboxEvaluator
from evaluators.package_installation import _PIP, environment
from speciate.domain.errors import EvaluatorUnavailableError

_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}"
_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PROGRAM = "import {name}\ndef solve(x):\n    return {name}.VALUE + x\n"


def wheel(folder, name, version="1.0", value=1, more="", extra=None):
    files = {f"{name}/__init__.py": f"VALUE = {value}\n", **(extra or {})}
    info = f"{name}-{version}.dist-info"
    files |= {f"{info}/METADATA": _METADATA.format(name=name, version=version, more=more), f"{info}/WHEEL": _WHEEL}
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in files.items():
            member = zipfile.ZipInfo(file)
            member.external_attr = (0o100755 if text.startswith("#!") else 0o100644) << 16
            archive.writestr(member, text)


def archive(folder, name, marker):
    path = folder / f"{name}-1.0.tar.gz"
    script = f"open({str(marker)!r}, 'w').close()\n"
    project = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    files = {"setup.py": script, "backend.py": script, "pyproject.toml": project}
    with tarfile.open(path, "w:gz") as tar:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def store(tmp_path) -> EnvironmentStore:
    tmp_path.chmod(0o755)
    return EnvironmentStore(tmp_path / "environments")


def problem_with(make_problem, *requirements, **fields):
    cases = [{"input": [1], "expected": 2}]
    return make_problem("cases", cases=cases, requirements=requirements, limits={"wall_s": 20}, **fields)


@pytest.mark.parametrize("tier", ["A", "B"])
def test_candidates_import_the_packages_of_their_problem_and_no_others(tier, index, store, make_problem):
    for version, value in (("1.0", 1), ("2.0", 2)):
        wheel(index, "speciate_probe", version, value)
    with closing(SandboxEvaluator(tier, author_grace_s=0.5, environments=store)) as sandbox:
        program = _PROGRAM.format(name="speciate_probe")
        old, new = (problem_with(make_problem, f"speciate_probe=={version}") for version in ("1.0", "2.0"))
        warm = problem_with(make_problem, "speciate_probe==1.0", preload=["speciate_probe"])
        lines: list[str] = []
        first, other = sandbox.evaluate(old, [program, "import numpy\n" + program], seeds=[0, 1], report=lines.append)
        assert (first.failure, first.rewards, any("Installing" in line for line in lines)) == (None, (1.0,), True)
        assert other.failure is not None
        assert "No module named 'numpy'" in other.failure.detail
        assert sandbox.evaluate(new, [program], seeds=[0])[0].rewards == (0.0,)
        digests = {each.environment for each in (first, other)}
        assert (len(digests), {*map(len, digests)}) == (1, {64})
        lines.clear()
        assert (sandbox.evaluate(warm, [program], seeds=[0])[0].rewards, lines) == ((1.0,), [])
    assert old.evaluator_digest != new.evaluator_digest


@pytest.mark.parametrize("tier", ["A", "B"])
def test_preloaded_packages_run_contained(tier, index, store, make_problem, tmp_path):
    tmp_path.chmod(0o777)
    marker = tmp_path / "outside"
    with socket.create_server(("127.0.0.1", 0)) as server:
        module = (
            "import contextlib, socket\n"
            "VALUE = 1\n"
            "with contextlib.suppress(OSError):\n"
            f"    open({str(marker)!r}, 'w').close()\n"
            "with contextlib.suppress(OSError):\n"
            f"    socket.create_connection({server.getsockname()!r}, 1)\n"
        )
        wheel(index, "prying", extra={"prying/__init__.py": module})
        with closing(SandboxEvaluator(tier, author_grace_s=0.5, environments=store)) as sandbox:
            problem = problem_with(make_problem, "prying", preload=["prying"])
            (result,) = sandbox.evaluate(problem, [_PROGRAM.format(name="prying")], seeds=[0])
        assert (result.failure, result.rewards, marker.exists()) == (None, (1.0,), False)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("wanted", ["-e .", "evil @ file:///evil.tar.gz", "./evil", "--index-url=x", "a --pre", "$X"])
def test_requirements_name_packages_only(wanted, make_problem):
    with pytest.raises(ValueError, match="requirements"):
        problem_with(make_problem, wanted)


def test_a_failed_build_names_the_reason_of_pip(index, store):
    with (
        pytest.raises(EvaluatorUnavailableError, match="No matching distribution found for absent"),
        store.use(["absent"]),
    ):
        pass
    assert not [*store._root.glob("*-*")]


def test_hashes_are_compared(index, store):
    wheel(index, "locked")
    digest = hashlib.sha256((index / "locked-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    with store.use([f"locked==1.0 --hash=sha256:{digest}"]) as environment:
        assert (environment.site / "locked").is_dir()
    with (
        pytest.raises(EvaluatorUnavailableError, match="THESE PACKAGES DO NOT MATCH THE HASHES"),
        store.use([f"locked==1.0 --hash=sha256:{'0' * 64}"]),
    ):
        pass


def test_no_setup_script_runs(index, store, tmp_path):
    marker = tmp_path / "ran"
    evil = archive(index, "evil", marker)
    wheel(index, "front", more=f"Requires-Dist: evil @ {evil.as_uri()}\n")
    for wanted in ("evil", "front"):
        with pytest.raises(EvaluatorUnavailableError), store.use([wanted]):
            pass
    assert not marker.exists()


def test_a_script_runs_the_program_of_a_package(strongest, index, store, make_problem):
    if strongest.tier != TIER_A:
        pytest.skip("programs that are started need tier A, which does not hold here")
    wheel(index, "solver", extra={"solver/solve": "#!/bin/sh\necho 1\n"})
    script = (
        "import os, solver, subprocess\n"
        "def evaluate(candidate, context):\n"
        "    program = os.path.join(os.path.dirname(solver.__file__), 'solve')\n"
        "    return float(subprocess.run([program], capture_output=True, check=True).stdout)\n"
    )
    problem = make_problem("evaluator", evaluator=script, requirements=["solver==1.0"], limits={"wall_s": 20})
    with closing(SandboxEvaluator(TIER_A, environments=store)) as sandbox:
        (result,) = sandbox.evaluate(problem, ["x = 1"], seeds=[0])
    assert result.rewards == (1.0,), result.failure


def test_changed_folders_are_built_again(index, store):
    wheel(index, "speciate_probe")
    with store.use(["speciate_probe"]) as built:
        pass
    for change in (
        lambda site: (site / "speciate_probe" / "__init__.py").write_text("VALUE = 666\n"),
        lambda site: next(site.rglob("__init__*.pyc")).write_bytes(b"poison"),
        lambda site: (site / "numpy.py").write_text("poison"),
        lambda site: (site / "link").symlink_to("/etc/passwd"),
    ):
        change(built.site)
        with EnvironmentStore(store._root).use(["speciate_probe"]) as again:
            assert again.digest == built.digest
            assert {path.name for path in again.site.iterdir()} == {"speciate_probe", "speciate_probe-1.0.dist-info"}
            assert (again.site / "speciate_probe" / "__init__.py").read_text() == "VALUE = 1\n"
            built = again
    store._root.chmod(0o777)
    with pytest.raises(EvaluatorUnavailableError, match="writable only"), store.use(["speciate_probe"]):
        pass


def test_builds_inherit_no_libraries_and_no_secrets(index, monkeypatch):
    for name in ("LD_PRELOAD", "PYTHONPATH", "SPECIATE_SECRET_KEY"):
        monkeypatch.setenv(name, "x")
    inherited = environment("/tmp")
    assert not {"LD_PRELOAD", "PYTHONPATH", "SPECIATE_SECRET_KEY"} & inherited.keys()
    assert inherited["PIP_FIND_LINKS"] == str(index)


def test_concurrent_builds_are_one(index, store):
    wheel(index, "speciate_probe")
    sites, lines = [], []

    def build():
        with EnvironmentStore(store._root).use(["speciate_probe"], lines.append) as built:
            sites.append(built.site)

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(sites), len(set(sites)), lines.count("Compiling")) == (3, 1, 1)


def test_pruning_keeps_what_is_used_or_new(index, store):
    for name in ("one", "two"):
        wheel(index, name)
    long_ago = time.time() - 100 * 86_400
    with store.use(["one"]) as one:
        with store.use(["two"]) as two:
            pass
        for lock in store._root.glob("*.lock"):
            os.utime(lock, (long_ago, long_ago))
        assert (store.prune(), one.site.exists(), two.site.exists()) == (1, True, False)
    small = EnvironmentStore(store._root, max_bytes=10)
    assert (small.prune(), one.site.exists()) == (1, False)
    with pytest.raises(EvaluatorUnavailableError, match="environments_bytes"), small.use(["one"]):
        pass


def test_a_wheel_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(index, store):
    small = EnvironmentStore(store._root, max_bytes=8 << 20)
    wheel(index, "bomb", extra={"bomb/data.txt": "0" * (64 << 20)})
    wheel(index, "half", extra={"half/data.txt": "0" * (5 << 20)}, more="Requires-Dist: other\n")
    wheel(index, "other", extra={"other/data.txt": "0" * (5 << 20)})
    for name in ("bomb", "half"):
        with pytest.raises(EvaluatorUnavailableError, match=r"unpack to .* `environments_bytes` = 8388608"):
            small.use([name]).__enter__()
    assert not [*store._root.glob("*-*")]


def test_a_folder_is_measured_while_it_is_filled(index, store, monkeypatch):
    monkeypatch.setattr("evaluators.package_installation._PIP", "while True: open('part', 'ab').write(bytes(1 << 16))")
    small = EnvironmentStore(store._root, max_bytes=8 << 20)
    with pytest.raises(EvaluatorUnavailableError, match=r"File too large|fills .* `environments_bytes`"):
        small.use(["endless"]).__enter__()
    many = "for i in range(10**9): open(f'part{i}', 'w').close()"
    monkeypatch.setattr("evaluators.package_installation._PIP", many)
    monkeypatch.setattr("evaluators.package_installation._MOST_FILES", 100)
    with pytest.raises(EvaluatorUnavailableError, match="100 files, are allowed"):
        small.use(["endless"]).__enter__()


def test_what_needs_too_much_memory_is_not_compiled(index, store, monkeypatch):
    monkeypatch.setattr("evaluators.package_installation._COMPILER_BYTES", 128 << 20)
    wheel(index, "names", extra={"names/many.py": "a\n" * 1_000_000})
    with store.use(["names"]) as environment:
        assert {path.name.partition(".")[0] for path in environment.site.rglob("*.pyc")} == {"__init__"}


def test_a_python_without_pip_says_how_to_install_it(store, monkeypatch):
    absent = _PIP.replace("pip._internal", "absent_pip._internal")
    monkeypatch.setattr("evaluators.package_installation._PIP", absent)
    with pytest.raises(EvaluatorUnavailableError, match="this Python has no pip: run `python -m ensurepip`"):
        store.use(["one"]).__enter__()
