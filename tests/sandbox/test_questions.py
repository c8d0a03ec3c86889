"""A candidate can read only its own calls, once and in order."""

from tests.sandbox.arenas import make_problem
from tests.sandbox.programs import answer, in_solve
from tests.sandbox.test_secrets import PATIENT, probe

SECRET = "sesame-beside-456456"


def test_the_channel_cannot_be_rewound(arena):
    program = """
import os, socket
channel = socket.socket(fileno=os.dup(3))
def solve(word):
    found = []
    for name, again in {
        "seek": lambda: os.lseek(3, 0, 0) or os.read(3, 99),
        "read at the start": lambda: os.pread(3, 99, 0),
        "peek": lambda: channel.recv(99, socket.MSG_PEEK | socket.MSG_DONTWAIT),
        "out of band": lambda: channel.recv(99, socket.MSG_OOB | socket.MSG_DONTWAIT),
        "errors": lambda: channel.recvmsg(99, 99, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)[0],
        "open again": lambda: open("/proc/self/fd/3", "rb").read(99),
        "map": lambda: __import__("mmap").mmap(3, 4096),
    }.items():
        try:
            if again(): found.append(name)
        except (OSError, ValueError):
            pass
    return found
"""
    assert answer(arena, program, "a question") == "[]"


def test_hidden_questions_do_not_wait_in_the_channel(arena):
    """Visible ones do: they may be read ahead, at the price of their own answers."""
    program = """
import os, select
def solve(word):
    waiting = b""
    while select.select([3], [], [], 0.3)[0]:
        waiting += os.read(3, 1 << 16)
    return [b"a visible one" in waiting, b"a hidden one" in waiting, b"expected" in waiting]
"""
    cases = [
        {"input": ["the first"], "expected": [True, False, False]},
        {"input": ["a visible one"], "expected": "expected"},
        {"input": ["a hidden one"], "expected": "expected", "hidden": True},
    ]
    evaluation = arena.attack(program, cases=cases, limits={"wall_s": 1})
    assert evaluation.rewards == (1 / 3,), evaluation


def test_a_candidate_at_the_same_time_is_out_of_sight(arena):
    beside = f"import os, time\nkept = [{SECRET!r}]\nos.environ['KEPT'] = kept[0]\n" + in_solve(
        "try: open('kept', 'w').write(kept[0])", "except OSError: pass", "time.sleep(1.5)", "return x"
    )
    number = arena.begin(make_problem(cases=[{"input": [SECRET], "expected": SECRET}]), [beside])
    # It reads all that is mapped, libraries too, perhaps from a slow disk.
    problem = make_problem(cases=[{"input": [0], "expected": [False, False]}], limits=PATIENT)
    (looking,) = arena.evaluate(problem, [probe(SECRET)])
    assert looking.rewards == (1.0,), looking
    assert arena.collect(number)[0].rewards == (1.0,)
