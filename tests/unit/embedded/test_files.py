"""Locks, passwords, reach and places: what the launcher decides from files alone."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from speciate.embedded import guard, passwords, placement
from speciate.embedded.account import ServerAccount, server_account
from speciate.embedded.errors import DataDirectoryBusyError, EmbeddedServerError
from speciate.embedded.liveness import birth, runs
from speciate.embedded.lock import DataDirectoryLock
from speciate.embedded.secret_key import with_own_secret_key
from speciate.embedded.shared import SharedPostgres
from speciate.settings import load_settings

STRANGER = ServerAccount("stranger", uid=54321, gid=54321)


def test_the_lock_is_free_after_release_and_remembers(tmp_path: Path) -> None:
    lock = DataDirectoryLock(tmp_path)
    assert lock.acquire(timeout_s=0) is None
    lock.describe(tmp_path / "runtime")
    assert not DataDirectoryLock(tmp_path).wait_until_free(timeout_s=0)
    with pytest.raises(DataDirectoryBusyError, match=rf"kill {os.getpid()}") as caught:
        DataDirectoryLock(tmp_path).acquire(timeout_s=0)
    assert caught.value.pid == os.getpid()
    lock.release()
    assert DataDirectoryLock(tmp_path).wait_until_free(timeout_s=0)
    again = DataDirectoryLock(tmp_path)
    assert again.acquire(timeout_s=0) == str(tmp_path / "runtime")
    again.release()


@pytest.mark.parametrize("noted", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "began": "another"}'])
def test_a_lock_of_nobody_known_is_waited_for(tmp_path: Path, noted: str) -> None:
    lock = DataDirectoryLock(tmp_path)
    lock.acquire(timeout_s=0)
    (tmp_path / "lock").write_text(noted)
    with pytest.raises(DataDirectoryBusyError, match="still stopping") as caught:
        DataDirectoryLock(tmp_path).acquire(timeout_s=0.05)
    assert caught.value.pid is None
    lock.release()
    with pytest.raises(ValueError, match="not held"):
        _ = lock.fd


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    assert birth(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert birth(child.pid) is None
    assert not runs(child.pid, "sleep")
    child.wait()
    assert birth(child.pid) is None


def test_a_program_is_told_by_its_name() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert runs(child.pid, "sleep")
        assert not runs(child.pid, "postgres")
        child.kill()


def test_passwords_are_kept_and_private(tmp_path: Path) -> None:
    made = passwords.load_or_create(tmp_path, cluster_exists=False)
    kept = passwords.load_or_create(tmp_path, cluster_exists=True)
    assert (made.postgres, made.valkey) == (kept.postgres, kept.valkey)
    assert made.postgres != made.valkey
    assert made.postgres not in repr(made)
    assert [path.name for path in tmp_path.iterdir()] == ["passwords.json"]
    assert (tmp_path / "passwords.json").stat().st_mode & 0o777 == 0o600


def test_first_commands_that_run_at_once_share_one_secret_key(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def key(_: int) -> object:
        together.wait()
        return with_own_secret_key(load_settings(data_dir=tmp_path)).secret_key

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(key, range(8)))) == 1
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("secret.key", 0o600)


@pytest.mark.parametrize("text", ["", "[]", '{"postgres": "x"}'])
def test_damaged_passwords_are_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "passwords.json").write_text(text)
    with pytest.raises(EmbeddedServerError, match=r"does not hold the two passwords"):
        passwords.load_or_create(tmp_path, cluster_exists=False)


def test_reach_follows_every_directory(tmp_path: Path) -> None:
    myself = ServerAccount("me", os.getuid(), os.getgid())
    assert STRANGER.can_reach(Path("/"))
    assert myself.can_reach(tmp_path)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private" / "open").mkdir(mode=0o755)
    assert not STRANGER.can_reach(tmp_path / "private" / "open")


def test_a_missing_account_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("no-such-account", "root"):
        monkeypatch.setenv("SPECIATE_POSTGRES_USER", name)
        with pytest.raises(EmbeddedServerError, match=name):
            server_account()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert server_account() is None


def test_places_too_deep_for_a_socket_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_SOCKET_PATH_LIMIT", 10)
    with pytest.raises(EmbeddedServerError, match="XDG_RUNTIME_DIR"):
        placement.make_runtime_dir()


def test_a_cluster_stays_where_its_link_points(tmp_path: Path) -> None:
    (tmp_path / "postgres").symlink_to("/elsewhere/cluster")
    assert placement.cluster_directory(tmp_path, STRANGER) == Path("/elsewhere/cluster")


def test_a_cluster_whose_link_was_lost_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_SHARED_STATE", tmp_path / "shared")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    nearby = ServerAccount("nearby", os.getuid(), os.getgid())
    monkeypatch.setattr(ServerAccount, "can_reach", lambda self, path: path != data)
    cluster = placement.cluster_directory(data, nearby)
    assert (data / "postgres").readlink() == cluster
    cluster.mkdir()
    (data / "postgres").unlink()
    with pytest.raises(EmbeddedServerError, match=r"ln -s"):
        placement.cluster_directory(data, nearby)


def test_an_existing_data_directory_keeps_its_mode(tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.mkdir(mode=0o750)
    assert placement.make_data_dir(existing).stat().st_mode & 0o777 == 0o750
    made = placement.make_data_dir(tmp_path / "new" / "data")
    assert made.stat().st_mode & 0o777 in (0o700, 0o711)


def test_a_name_that_is_cut_within_a_character_is_read() -> None:
    code = "import setproctitle, time; setproctitle.setproctitle('x' * 14 + 'é'); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert birth(child.pid)
        assert child.pid in guard._processes_below(os.getpid())
        child.kill()


def test_a_folder_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    for start in (SharedPostgres(tmp_path).start, lambda: DataDirectoryLock(tmp_path).acquire(timeout_s=0)):
        with pytest.raises(EmbeddedServerError, match="local disk"):
            start()


def test_root_that_cannot_give_files_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "chown", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    with pytest.raises(EmbeddedServerError, match="ordinary user"):
        placement.make_private_dir(tmp_path / "postgres", STRANGER)
