"""``docker-compose.yml`` is valid, hardened and complete."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from benchmarks.topology.compose import FILE, ROOT, compose, default_services
from service.__main__ import parser
from speciate.cli.app import COMMANDS
from speciate.cli.doctor.findings import Status
from speciate.cli.doctor.machine import environment
from speciate.domain.limits import Limits
from speciate.embedded.binaries import find_valkey
from speciate.settings import FILE_SUFFIX, SERVE_TOKEN_VARIABLE, Settings

OVERRIDE = ROOT / "deploy" / "compose.tier-a.yml"
_PARTS = {"name", "services", "networks", "volumes", "secrets", "configs"}
# Those that files of ours use, or may.
_KEYS = {
    "build",
    "cap_drop",
    "command",
    "configs",
    "cpu_shares",
    "depends_on",
    "deploy",
    "entrypoint",
    "environment",
    "healthcheck",
    "image",
    "logging",
    "networks",
    "pids_limit",
    "ports",
    "profiles",
    "read_only",
    "restart",
    "secrets",
    "security_opt",
    "shm_size",
    "stop_grace_period",
    "tmpfs",
    "user",
    "volumes",
}
_HEALTH = {"disable", "interval", "retries", "start_interval", "start_period", "test", "timeout"}
SERVICES: dict[str, dict[str, Any]] = compose(environment={})["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("speciate:")]


def _unknown(document: dict[str, Any]) -> set[str]:
    """Return keys that the compose specification does not have: a misspelt one would be refused at the first start."""
    found = {key for key in document if key not in _PARTS and not key.startswith("x-")}
    for service in document["services"].values():
        found |= set(service) - _KEYS
        found |= set(service.get("healthcheck", {})) - _HEALTH
    return found


@pytest.mark.parametrize("path", [FILE, OVERRIDE], ids=lambda path: path.name)
def test_keys_belong_to_the_compose_specification(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert _unknown(document) == set()
    document["services"]["odd"] = {"image": "x", "healtcheck": {}}
    assert _unknown(document) == {"healtcheck"}


def _compose_plugin() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _compose_plugin(), reason="docker compose is not installed")
@pytest.mark.parametrize("files", [[FILE], [FILE, OVERRIDE]], ids=["alone", "tier A"])
def test_docker_compose_config_accepts_it(files: list[Path]) -> None:
    named = [part for path in files for part in ("-f", str(path))]
    command = ["docker", "compose", *named, "--profile", "*", "config", "--quiet"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_hardened_pinned_and_monitored(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert re.search(r":v?\d+\.\d+(\.\d+)?(-\w+)?$", service["image"]), "the image names no version"
    health = service["healthcheck"]
    assert health.get("test") or (health == {"disable": True} and service["restart"] == "no")
    assert set(service.get("secrets", ())) <= set(compose()["secrets"])
    for mount in service.get("volumes", []):
        source = mount.rsplit(":", 2 if mount.endswith(":ro") else 1)[0]
        named = source in compose()["volumes"]
        assert named or mount.endswith(":ro"), f"{mount} can be written"
        assert named or source == "./models" or (ROOT / source).exists(), f"{source} is not there"


def test_candidates_reach_only_the_servers() -> None:
    networks = compose()["networks"]
    assert SERVICES["evaluate"]["networks"] == ["data"]
    assert networks["data"]["internal"]
    assert set(SERVICES["evaluate"]["secrets"]) == {"database_url", "redis_url"}
    members = {name for name, service in SERVICES.items() if "data" in service["networks"]}
    assert members == {"postgres", "redis", "migrate", "api", "generate", "evaluate", "learn", "control"}
    published = {name for name, service in default_services(compose(environment={})).items() if "ports" in service}
    assert published == {"proxy"}
    assert all(port.startswith("127.0.0.1:") for s in SERVICES.values() for port in s.get("ports", []))


@pytest.mark.parametrize("name", OURS)
def test_commands_and_variables_exist(name: str) -> None:
    service = SERVICES[name]
    program, *rest = service["command"]
    match program:
        case "python":
            assert rest[:2] == ["-m", "service"]
            assert parser(Settings()).parse_args(rest[2:]).port == 8420
        case "celery":
            assert importlib.util.find_spec(rest[1])
            queues = set(rest[rest.index("-Q") + 1].split(","))
            assert queues <= {"generate", "evaluate", "learn", "retry", "control"}
        case "speciate":
            assert rest[0] in COMMANDS
        case _:
            pytest.fail(f"{program} is no program of ours")
    values = {f"SPECIATE_{field.upper()}" for field in Settings.model_fields} | {SERVE_TOKEN_VARIABLE}
    known = values | {value + FILE_SUFFIX for value in values}
    given = service["environment"]
    assert {variable for variable in given if variable.startswith("SPECIATE_")} <= known
    for variable, value in given.items():
        if variable.endswith(FILE_SUFFIX):
            assert value.removeprefix("/run/secrets/") in service["secrets"], f"{variable} is not mounted"


@pytest.mark.parametrize(
    "name", [name for name, service in SERVICES.items() if service.get("command", [""])[0] == "sh"]
)
def test_shells_exec_their_server(name: str) -> None:
    # A shell as process 1 hears no signal: its container would be killed, after a wait.
    script = SERVICES[name]["command"][-1]
    assert "exec " in script
    assert "|" not in script


def test_cache_requires_its_password_and_stops_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "redis_password").write_text("a-secret-of-this-test")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shell, flag, script = SERVICES["redis"]["command"]
    script = script.replace("/run/secrets", str(tmp_path)).replace("appendonly no", f"appendonly no\nport {port}")
    script = script.replace("valkey-server", str(find_valkey()))
    with subprocess.Popen([shell, flag, script], cwd=tmp_path) as server:
        try:
            retry = Retry(ConstantBackoff(0.1), 100)
            with redis.Redis(port=port, password="a-secret-of-this-test", retry=retry) as client:
                assert client.ping()
            with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
                client.ping()
            server.terminate()
            assert server.wait(timeout=10) == 0
        finally:
            server.kill()


def test_doctor_knows_every_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    named = set(re.findall(r"\$\{(SPECIATE_\w+)", FILE.read_text()))
    assert len(named) > 5
    for name in named:
        monkeypatch.setenv(name, "1")
    assert environment().status is Status.GOOD


@pytest.mark.parametrize(("given", "url"), [({}, ""), ({"SPECIATE_URL": "https://lab.example"}, "https://lab.example")])
def test_processes_know_the_public_url(given: dict[str, str], url: str) -> None:
    services = compose(environment=given)["services"]
    assert services["api"]["environment"]["SPECIATE_URL"] == url
    assert services["control"]["environment"]["SPECIATE_URL"] == (url or "http://127.0.0.1:8420")


def test_limits_fit_a_large_machine() -> None:
    cores = 64
    # A slot is a process of five threads, a zygote, a supervisor and a script with as many threads and processes as a
    # problem may have without asking for more threads.
    (most,) = [rule.le for rule in Limits.model_fields["processes"].metadata if hasattr(rule, "le")]
    most += Limits().threads
    for name in ("evaluate", "control"):
        assert SERVICES[name]["pids_limit"] >= cores * (8 + most)
    assert SERVICES["generate"]["pids_limit"] > 8 * 256, "a thread for each request of a policy, eight batches"
    # docs/evidence/scale-out.md: 2 sessions for each process of the pool and slot of generate, 22 a replica of the API.
    sessions = 2 * cores + 2 * (8 + 2) + 2 * 22 + 2 * 4
    (given,) = re.findall(r"max_connections=(\d+)", " ".join(SERVICES["postgres"]["command"]))
    assert sessions < int(given) < SERVICES["postgres"]["pids_limit"] - 50


def test_every_queue_has_a_worker() -> None:
    queues = [s["command"][s["command"].index("-Q") + 1] for s in SERVICES.values() if "-Q" in s.get("command", [])]
    assert set(",".join(queues).split(",")) == {"generate", "evaluate", "learn", "retry", "control"}


def test_secrets_are_created_once_for_their_owner(tmp_path: Path) -> None:
    def made() -> dict[str, str]:
        subprocess.run([ROOT / "deploy" / "make-secrets.sh", tmp_path / "secrets"], check=True)
        return {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}

    first = made()
    assert set(first) >= set(compose()["secrets"])
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert all(value and value == value.strip() for value in first.values())
    assert len(set(first.values())) == len(first)
    assert first["database_password"] in first["database_url"]
    # Users of containers read them, and their owner replaces them.
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()} == {0o644}
    assert made() == first


def test_tier_a_profile_allows_namespaces_and_blocks_kernel_calls() -> None:
    profile = json.loads((ROOT / "deploy" / "seccomp" / "tier-a.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ERRNO"}
    denied = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert not denied & {"clone", "clone3", "unshare", "mount", "umount2", "pivot_root", "seccomp", "prctl"}
    assert denied >= {"bpf", "kexec_load", "init_module", "open_by_handle_at", "perf_event_open", "reboot", "ptrace"}
    override = yaml.safe_load(OVERRIDE.read_text())["services"]
    for service in override.values():
        (named,) = [each for each in service["security_opt"] if each.startswith("seccomp=")]
        assert (ROOT / named.removeprefix("seccomp=")).exists()
        # Compose puts both lists together, and refuses what is there twice.
        assert not {*service["security_opt"]} & {*SERVICES["evaluate"]["security_opt"]}
    # Work that was lost is evaluated again by control, under the same walls.
    assert set(override) == {"evaluate", "control"}


def test_one_service_builds_the_image_of_all() -> None:
    assert [name for name in OURS if "build" in SERVICES[name]] == ["migrate"]


_DOCKER = r"""#!/bin/sh
printf '%s\t' "$@" >> "$CALLS"; echo >> "$CALLS"
case "$*" in
    *" ps -q evaluate") seq 3 ;;
    *" ps -q learn") seq "$LEARN" ;;
    *" ps -q "*) seq 2 ;;
esac
"""


@pytest.mark.parametrize("learn", [0, 1])
def test_upgrade_replaces_every_process_and_keeps_the_scale(tmp_path: Path, learn: int) -> None:
    # Stands in for an engine: says how many containers run, and writes down what it is asked.
    for name, text in {"docker": _DOCKER, "sleep": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls"), "LEARN": str(learn)}
    subprocess.run([ROOT / "deploy" / "upgrade.sh", "-f", "our files/compose.yml"], env=environment, check=True)
    calls = [line.split("\t")[:-1] for line in (tmp_path / "calls").read_text().splitlines()]
    calls = [call for call in calls if call[0] == "compose"]
    assert all(call[:3] == ["compose", "-f", "our files/compose.yml"] for call in calls)
    (built,) = [call[call.index("build") + 1 :] for call in calls if "build" in call]
    assert built == ["migrate", *["learn"] * learn]
    replaced = [word for call in calls if "up" in call for word in call[call.index("up") :]]
    ours = {name for name in OURS if SERVICES[name]["restart"] != "no"}
    assert ours | {*["learn"] * learn} == {name for name in [*ours, "learn"] if name in replaced}
    assert {"evaluate=3", "control=2", *["learn=1"] * learn} <= {*replaced}
    assert learn or "learn=0" not in replaced


def test_learned_adapters_and_their_base_are_seen_by_both_sides() -> None:
    for name in ("learn", "vllm", "vllm-cpu"):
        assert {"/models", "/checkpoints"} <= {volume.split(":")[1] for volume in SERVICES[name]["volumes"]}


def test_image_contains_what_processes_need() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    assert len(stages) == 2
    assert all(re.search(r":\d+\.\d+\.\d+-slim", stage) for stage in stages)
    assert re.search(r"^USER 10001:10001$", text, flags=re.MULTILINE)
    # A group without a name is taken by Celery for that of a superuser, of which it warns.
    assert re.search(r"groupadd .*--gid 10001 .*useradd .*--uid 10001 --gid 10001", text)
    # Another process 1 would not reap what a killed evaluator leaves.
    assert re.search(r'^ENTRYPOINT \["tini", "--"\]$', text, flags=re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, flags=re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists()
            sent = any(rule == f"!{name}" or rule.startswith(f"!{name}/") for rule in ignored)
            assert sent, f"{name} is not sent to the builder"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    sdist = build["targets"]["sdist"]["include"]
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", text, flags=re.MULTILINE)
    copied = {name.partition("/")[0] for source in sources for name in source.split()}
    assert copied <= {*sdist, "pyproject.toml", "LICENSE"}
