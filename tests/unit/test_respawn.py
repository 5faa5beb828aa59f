"""When a dead process is started again: at once, ever later in a crash loop, soon after SIGKILL (P23)."""

from __future__ import annotations

from dataclasses import dataclass

from etl.services.respawn import Respawn


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def deaths(count: int, *, lives_for: float = 0.1, killed: bool = False) -> list[float]:
    """Give the pauses after so many deaths, each as soon as it may be started."""
    clock = Clock()
    respawn = Respawn(clock)
    pauses = []
    for _ in range(count):
        assert respawn.due
        respawn.started()
        clock.now += lives_for
        pauses.append(respawn.ended(killed=killed))
        assert respawn.due == (pauses[-1] == 0)
        clock.now += pauses[-1]
    return pauses


def test_one_that_ends_at_once_again_and_again_is_started_ever_later() -> None:
    assert deaths(11) == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_one_that_is_killed_never_waits_longer_than_five_seconds() -> None:
    assert deaths(9, killed=True) == [0, 0, 1, 2, 4, 5, 5, 5, 5]


def test_one_that_lives_for_a_while_is_started_at_once() -> None:
    assert deaths(20, lives_for=6.0) == [0] * 20


def test_half_a_minute_of_life_resets_the_count() -> None:
    clock = Clock()
    respawn = Respawn(clock)
    pauses = []
    for lived in (0.1, 0.1, 0.1, 0.1, 31.0, 0.1, 0.1, 0.1):
        respawn.started()
        clock.now += lived
        pauses.append(respawn.ended(killed=False))
        clock.now += pauses[-1]
    assert pauses == [0, 0, 1, 2, 0, 0, 0, 1]
