"""No candidate reaches a network, a port of this machine, or a socket by any name."""

import pytest

from tests.sandbox.programs import BREACHED, HELD, answer, attempt, attempts

CONNECT = "import socket\ns = socket.socket(socket.{family}, socket.{kind})\ns.settimeout(2)\n{act}"


def connect(family, kind, act):
    return CONNECT.format(family=family, kind=kind, act=act)


REACHING = {
    "a port of this machine": connect("AF_INET", "SOCK_STREAM", "s.connect(tuple(there['addresses']['tcp']))"),
    "a datagram to this machine": connect("AF_INET", "SOCK_DGRAM", "s.sendto(b'x', tuple(there['addresses']['udp']))"),
    "an abstract socket": connect("AF_UNIX", "SOCK_STREAM", "s.connect(there['addresses']['abstract'])"),
    "a datagram to an abstract socket": connect(
        "AF_UNIX", "SOCK_DGRAM", "s.sendto(b'x', there['addresses']['abstract datagrams'])"
    ),
    "a named socket": connect("AF_UNIX", "SOCK_STREAM", "s.connect(there['addresses']['named'])"),
    "a named socket among what it may read": connect(
        "AF_UNIX", "SOCK_STREAM", "s.connect(there['addresses']['shown'])"
    ),
    "a datagram from a pair": (
        "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "a.sendto(b'x', there['addresses']['shown datagrams'])"
    ),
}
BEYOND = {
    "an address outside": connect("AF_INET", "SOCK_STREAM", "s.connect(('192.0.2.1', 80))"),
    "an address outside, of the new kind": connect("AF_INET6", "SOCK_STREAM", "s.connect(('2001:db8::1', 80))"),
    "a name": "import socket\nsocket.gethostbyname('example.org')",
    "raw packets": connect("AF_PACKET", "SOCK_RAW", "pass"),
    "the kernel's own sockets": connect("AF_NETLINK", "SOCK_RAW", "s.bind((0, 0))"),
    "listening": connect("AF_INET", "SOCK_STREAM", "s.bind(('127.0.0.1', 0)); s.listen()"),
    "listening by an abstract name": connect("AF_UNIX", "SOCK_STREAM", "s.bind('\\0' + there['mark']); s.listen()"),
    "a stream that is connected": "socket.socketpair()[0].sendto(b'x', there['addresses']['abstract datagrams'])",
    "the channel": "socket.socket(fileno=os.dup(3)).sendto(b'x', there['addresses']['abstract datagrams'])",
    "the channel, connected again": "socket.socket(fileno=os.dup(3)).connect(there['addresses']['abstract'])",
    "packets from a pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "virtual machines": connect("AF_VSOCK", "SOCK_STREAM", "s.connect((2, 22))"),
}


def test_nothing_is_reached(arena, outside):
    assert attempts(arena, REACHING | BEYOND, outside.seen_by(arena)) == dict.fromkeys(REACHING | BEYOND, HELD)


@pytest.mark.parametrize("body", REACHING.values(), ids=REACHING)
def test_without_walls_it_is(unsafe, unsafe_outside, body):
    assert attempt(unsafe, body, unsafe_outside.seen_by(unsafe)) == BREACHED


SERVERS = {
    "PostgreSQL": "('127.0.0.1', 5432)",
    "PostgreSQL, by name": "'/tmp/.s.PGSQL.5432'",
    "broker": "('127.0.0.1', 6379)",
    "outside": "('192.0.2.1', 80)",
    "metadata of a cloud": "('169.254.169.254', 80)",
}


@pytest.mark.parametrize("address", SERVERS.values(), ids=SERVERS)
def test_servers_are_out_of_reach_at_once(arena, address):
    """The network does not answer, with or without a listener."""
    program = f"""
import socket, time
def solve():
    began = time.monotonic()
    try:
        socket.socket(socket.AF_UNIX if isinstance({address}, str) else socket.AF_INET).connect({address})
        return "connected"
    except PermissionError:
        return "refused" if time.monotonic() - began < 1 else "late"
    except OSError as error:
        return repr(error)
"""
    assert answer(arena, program) == '"refused"'


def test_descriptors_sent_over_the_channel_go_nowhere(arena):
    program = """
import array, os, socket
def solve(x):
    with socket.socket(fileno=os.dup(3)) as channel:
        for _ in range(50):
            try:
                channel.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))])
            except OSError:
                pass
    return 2 * x
"""
    assert arena.attack(program).rewards == (1.0,)


def test_a_loop_of_events_works(arena):
    """asyncio works: it needs a pair of streams and polling."""
    program = (
        "import asyncio\nasync def go(x):\n    await asyncio.sleep(0)\n    return 2 * x\n"
        "def solve(x): return asyncio.run(go(x))\n"
    )
    assert arena.attack(program).rewards == (1.0,)
