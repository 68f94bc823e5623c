"""The published rewards and ends, on plain numbers.

As the scripts of github.com/CERC-AAI/realtime_rl have them: after every emulated frame the end is asked first, the
reward then, both on the memory of that frame; the last frame of an episode is paid, too. Once after the reset both are
asked and thrown away, so that later frames are compared with that one (`begin`).
"""

from __future__ import annotations

from async_wrappers.envs.gameboy.spec import Memory

__all__ = ["Catch", "Faints", "Points"]


class Points:
    """Tetris: the growth of the score. The end: the game is in any other state than 0."""

    watched = ("score_bcd", "game_state", "level")

    def begin(self, ram: Memory) -> None:
        """Begin an episode."""
        self._score = ram["score_bcd"]

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the points of a frame, and whether the game is over."""
        reward = ram["score_bcd"] - self._score
        self._score = ram["score_bcd"]
        return float(reward), ram["game_state"] != 0


class Faints:
    """Battles: -1 for a frame on which one of one's own faints, else +1 for one on which one of the opponent's does.

    One event is paid per frame, one's own first; what happens at the same time is lost. The end: no hit points in one
    of the two parties. An empty slot is one without hit points.
    """

    MINE = tuple(f"my_hp{slot}" for slot in range(1, 7))
    THEIRS = tuple(f"opp_hp{slot}" for slot in range(1, 7))
    watched = MINE + THEIRS

    def begin(self, ram: Memory) -> None:
        """Begin an episode."""
        self._before = ram

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the reward of a frame, and whether a party is beaten."""
        before, self._before = self._before, ram
        over = not any(ram[name] for name in self.MINE) or not any(ram[name] for name in self.THEIRS)
        if ram == before:
            return 0.0, over
        for party, reward in ((self.MINE, -1.0), (self.THEIRS, 1.0)):
            if any(ram[name] == 0 and before[name] > 0 for name in party):
                return reward, over
        return 0.0, over


class Catch:
    """Catching: +1 for the catch, -1 for a battle that ends without one. The end: there is no battle.

    A catch is one more in the box (where it goes when the party is full), or a change of the list of species owned. So
    a species that is owned already, caught while the party has room, is not seen, and the battle's end costs 1. Of all
    catches of an episode the first is paid. ``InBattle`` is 0 without a battle, 1 in a wild one, 2 in a trainer's, -1
    when all have fainted: a blackout is paid -1 on the frame of that, and ends later.
    """

    OWNED = tuple(f"Owned{byte}" for byte in range(1, 20))
    watched = ("InBattle", "box_qnt", *OWNED)

    def begin(self, ram: Memory) -> None:
        """Begin an episode."""
        self._caught, self._battle, self._box = 0, 0, -10
        self._owned: list[int] | None = None
        self._steady: Memory | None = None  # memory that pays nothing if it comes again: for speed
        self._reward(ram)

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the reward of a frame, and whether there is no battle any more."""
        return 0.0 if ram == self._steady else float(self._reward(ram)), ram["InBattle"] == 0

    def _reward(self, ram: Memory) -> int:
        self._steady = None
        if ram["box_qnt"] - self._box == 1:
            first, self._caught = 1 - self._caught, 1
            self._remember(ram)
            return first
        if self._owned is not None and not self._caught and self._owned != [ram[name] for name in self.OWNED]:
            self._caught = 1
            self._remember(ram)
            return 1
        if ram["InBattle"] < self._battle:
            self._battle = ram["InBattle"]
            return self._caught - 1
        self._battle = ram["InBattle"]
        self._remember(ram)
        self._steady = ram
        return 0

    def _remember(self, ram: Memory) -> None:
        self._owned = [ram[name] for name in self.OWNED]
        self._box = ram["box_qnt"]
