"""The death of any process ends the others, leaves nothing behind, and the next start works."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from speciate.embedded.servers import EmbeddedServers

from .conftest import Parent, alive, kill_all, wait_for, wait_until_gone

pytestmark = [pytest.mark.servers, pytest.mark.fault]

StartParent = Callable[..., Parent]


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"), autocommit=True)


def end_with_group(parent: Parent, number: int) -> None:
    """Send the signal to the whole process group, as a terminal does."""
    os.killpg(parent.process.pid, number)
    parent.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_outlives_the_parent(data_dir: Path, start_parent: StartParent, number: int) -> None:
    parent = start_parent(data_dir)
    with connect(parent.database_url):  # a busy server must stop as well
        pids = parent.everything()
        end_with_group(parent, number)
        assert wait_until_gone(pids) == []
    assert wait_for(lambda: not parent.runtime_dir.exists())


def test_servers_stop_cleanly_on_kill_9(data_dir: Path, start_parent: StartParent) -> None:
    log = data_dir / "logs" / "postgres.log"
    parent = start_parent(data_dir)
    size = log.stat().st_size
    pids = parent.everything()
    end_with_group(parent, signal.SIGKILL)
    assert wait_until_gone(pids) == []
    assert "database system is shut down" in log.read_text()[size:]


def test_a_start_after_kill_9_waits_for_the_old_servers(data_dir: Path, start_parent: StartParent) -> None:
    parent = start_parent(data_dir)
    os.kill(parent.guard, signal.SIGSTOP)  # the old guard is slow: the lock is still held
    end_with_group(parent, signal.SIGKILL)
    wake = threading.Timer(0.5, os.kill, (parent.guard, signal.SIGCONT))
    wake.start()
    with EmbeddedServers(data_dir) as servers:
        servers.start()
        assert not any(alive(pid) for pid in parent.pids.values())
    wake.join()


def test_kill_9_of_the_guard_ends_the_servers(data_dir: Path, start_parent: StartParent) -> None:
    parent = start_parent(data_dir)
    pids = parent.everything()
    os.kill(parent.guard, signal.SIGKILL)
    assert wait_until_gone(pids) == []
    parent.process.communicate("")  # the parent goes on, and stops in order
    assert parent.process.returncode == 0
    assert not parent.runtime_dir.exists()


def test_recovery_after_kill_9_of_everything(data_dir: Path, start_parent: StartParent) -> None:
    parent = start_parent(data_dir)
    with connect(parent.database_url) as connection:
        connection.execute("create table if not exists survived (n int)")
        connection.execute("insert into survived values (1)")
    kill_all([parent.guard, *parent.pids.values(), parent.process.pid])
    parent.process.wait()
    assert parent.runtime_dir.exists()
    with EmbeddedServers(data_dir) as servers:
        endpoints = servers.start()
        with connect(endpoints.database_url) as connection:
            assert connection.execute("select n from survived").fetchone() == (1,)
        assert not parent.runtime_dir.exists()


def test_an_interrupted_first_start_is_not_taken_for_a_cluster(fresh_dir: Path) -> None:
    draft = fresh_dir / "postgres.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    with EmbeddedServers(fresh_dir) as servers, connect(servers.start().database_url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert not draft.exists()


def test_a_stale_note_of_a_server_does_not_block_the_start(data_dir: Path) -> None:
    """Its process id is another program's, or a crash of the machine emptied it or filled it with zeros."""
    with EmbeddedServers(data_dir) as servers:
        servers.start()
    for note in (f"{os.getpid()}\n{data_dir / 'postgres'}\n1700000000\n5432\n/nowhere\n\n\nready\n", "", "\0" * 90):
        (data_dir / "postgres" / "postmaster.pid").write_text(note)
        with EmbeddedServers(data_dir) as servers:
            assert servers.start()


def test_an_ordinary_user(fresh_dir: Path, start_parent: StartParent) -> None:
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user: every other test here is this one")
    user = pwd.getpwnam("nobody")
    switch = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    python = interpreter_for(switch)
    home = fresh_dir / "home"
    home.mkdir(mode=0o700)
    os.chown(home, user.pw_uid, user.pw_gid)
    parent = start_parent(home / "data", python, env={"HOME": str(home)}, **switch)
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in parent.everything()} == {user.pw_uid}
    with connect(parent.database_url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    with redis.Redis.from_url(parent.redis_url) as cache:
        assert cache.ping()
    pids = parent.everything()
    end_with_group(parent, signal.SIGKILL)
    assert wait_until_gone(pids) == []
    assert wait_for(lambda: not parent.runtime_dir.exists())


def interpreter_for(switch: dict[str, object]) -> str:
    """Return a Python that the other user can run, with our imports; skip where there is none."""
    places = ":".join([str(Path(__file__).parents[3]), *(entry for entry in sys.path if "site-packages" in entry)])
    for candidate in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        probe = [candidate or "false", "-c", "import sys, speciate.embedded; sys.exit(sys.version_info < (3, 11))"]
        try:
            done = subprocess.run(probe, env={"PYTHONPATH": places}, cwd="/", capture_output=True, **switch)
        except PermissionError:
            continue
        if done.returncode == 0:
            return str(candidate)
    pytest.skip(f"{sys.executable} or this checkout lies below a private directory: another user cannot run it")
