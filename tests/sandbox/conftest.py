"""Every attack meets every tier, as root and as an ordinary user; what this machine cannot run is named at the end."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.sandbox.arenas import CONTAINING, NOT_TRIED, UNSAFE, Arena, ArenaClosedError
from tests.sandbox.surroundings import Surroundings

Enter = Callable[[str], Arena]


@pytest.fixture(scope="session")
def enter() -> Iterator[Enter]:
    """Start an arena when it is first asked for, and keep it, warm, for every later attack."""
    arenas: dict[str, Arena | ArenaClosedError] = {}

    def enter(name: str) -> Arena:
        if name not in arenas:
            try:
                arenas[name] = Arena(name)
            except ArenaClosedError as error:
                arenas[name] = error
        found = arenas[name]
        if isinstance(found, ArenaClosedError):
            pytest.skip(f"{NOT_TRIED}tier {name}: {found}")
        return found

    yield enter
    for arena in arenas.values():
        if isinstance(arena, Arena):
            arena.close()


@pytest.fixture(params=CONTAINING)
def arena(request: pytest.FixtureRequest, enter: Enter) -> Arena:
    """A tier whose walls must hold."""
    return enter(request.param)


@pytest.fixture
def unsafe(enter: Enter) -> Arena:
    """The tier without walls."""
    return enter(UNSAFE)


# Whose processes an accident meets makes no difference to what it does: each tier is tried as one user.
@pytest.fixture(params=[CONTAINING[0], CONTAINING[-1], UNSAFE])
def any_arena(request: pytest.FixtureRequest, enter: Enter) -> Arena:
    """Any tier: accidents stay inside even without walls."""
    return enter(request.param)


@pytest.fixture
def needs_root() -> None:
    """Skip what only root can do even without walls."""
    if os.geteuid() != 0:
        pytest.skip(f"{NOT_TRIED}what root alone could do without walls")


@pytest.fixture(scope="session")
def everything_outside() -> Iterator[Surroundings]:
    """Targets of the attacks, created once."""
    with Surroundings() as surroundings:
        yield surroundings


@pytest.fixture
def outside(everything_outside: Surroundings) -> Iterator[Surroundings]:
    """Targets of the attacks; the test fails if an attack reached one."""
    yield everything_outside
    everything_outside.assert_untouched()


@pytest.fixture
def unsafe_outside(everything_outside: Surroundings) -> Iterator[Surroundings]:
    """Targets of the attacks, which attacks reach without isolation."""
    yield everything_outside
    everything_outside.restore()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what could not be tried, once each."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {report.longrepr[2].removeprefix("Skipped: ") for report in skipped if isinstance(report.longrepr, tuple)}
    if lost := sorted(reason for reason in reasons if reason.startswith(NOT_TRIED)):
        terminalreporter.section("sandbox: attacks that met no wall here")
        for reason in lost:
            terminalreporter.write_line(reason)
