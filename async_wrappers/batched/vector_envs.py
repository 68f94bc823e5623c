"""`VectorEnvs`: any Gymnasium vector as `BatchedEnvs`, of any autoreset mode, delayed or not.

Where an end and the next first observation are shown
=====================================================

A row is shown when its environment needs a decision. Let a step end an episode of environment i.

* ``SAME_STEP``: the step returns the next episode's first observation, and the last one in ``info["final_obs"]``.
* ``DISABLED``: it returns the last one; row i is reset at once, by ``reset_mask``.
* ``NEXT_STEP``: it returns the last one, and the next step resets and ignores the action. Row i is held back for that
  step: its end is kept, and shown with the first observation. If all rows are held back, the vector steps on at once.
* `VectorRealtimeDelay` says of each row whether its next action counts (``deciding``). Where it does not, the row is
  held back until it does; episodes that are over by then had no decision, and are counted as unreported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from array_api_compat import is_torch_array
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from async_wrappers.array_libraries import on_host, stacked
from async_wrappers.batched.protocol import Shown
from async_wrappers.batched.rows import check_space, copied, finals, leaves, mapped, put_rows, taken
from async_wrappers.tensors.arrays import Library, first_array
from async_wrappers.wrapper_statistics import Statistics, load_statistics_of_rows, statistics_of_rows
from async_wrappers.wrappers.copies import Info, VectorEnv, batch, own_copy, own_info, put, row
from async_wrappers.wrappers.lockstep import autoreset_mode
from async_wrappers.wrappers.row_terms import is_of_numpy
from async_wrappers.wrappers.vector_delay import VectorRealtimeDelay

# What a row shows of the time since it was last shown.
_SHOWN_ONCE = (
    *("_reward", "_first", "_terminal", "_truncated", "_interval", "_applied", "_executed", "_sent_mask"),
    *("_unreported_episodes", "_unreported_reward"),
)
_LAST = ("final_obs", "final_observation")
_MOST_UNDECIDED = 100  # episodes of each environment in a row without a decision


class TurnCheck:
    """Whose turn it is: rows are shown, answered, shown again. Each call checks that it comes at its turn."""

    def __init__(self) -> None:
        self._shown: NDArray[np.int64] | None = None  # rows that wait for an answer
        self._running = False
        self._closed = False

    def begin(self) -> None:
        """Episodes begin."""
        if self._closed:
            raise RuntimeError("the environments are closed: make new ones")
        self._running, self._shown = True, None

    def end(self, closed: bool = False) -> None:
        """All episodes are over."""
        self._running, self._shown, self._closed = False, None, self._closed or closed

    def before_recv(self) -> None:
        """Check that rows can be received.

        Raises:
            RuntimeError: They cannot.
        """
        if not self._running:
            raise RuntimeError("no episodes are running: call begin(seeds) first")
        if self._shown is not None:
            raise RuntimeError(f"send actions for the {len(self._shown)} rows of the last recv() before the next one")

    def show(self, env_ids: NDArray[np.int64]) -> None:
        """These rows are shown."""
        self._shown = env_ids

    def answer(self, env_ids: Any, actions: Any) -> None:
        """Check that these are the rows that were shown, and that there is an action for each.

        Raises:
            RuntimeError: No rows were shown.
            ValueError: Others were.
        """
        shown = self._shown
        if shown is None:
            raise RuntimeError("no rows wait for actions: call recv() first")
        if env_ids is not shown and not np.array_equal(env_ids, shown):
            raise ValueError(f"env_ids must be those of the last recv(), {_some(shown)}, got {_some(env_ids)}")
        for leaf in leaves(actions):
            if len(leaf) != len(shown):
                raise ValueError(f"actions must be one for each of {len(shown)} rows, got {len(leaf)}")
        self._shown = None

    def before_cut(self) -> None:
        """Check that there is something to cut.

        Raises:
            RuntimeError: There is not.
        """
        if not self._running:
            raise RuntimeError("no episodes are running: call begin(seeds) first")


def _some(env_ids: Any) -> str:
    numbers = np.asarray(env_ids).tolist()
    return str(numbers) if not isinstance(numbers, list) or len(numbers) <= 8 else f"{numbers[:8]} and more"


def seeds_of(seeds: Sequence[int], num_envs: int) -> NDArray[np.int64]:
    """Return the seeds as an array.

    Raises:
        ValueError: They are not one whole number from 0 to 2**31 - 1 for each environment.
    """
    given = np.asarray(seeds)
    if given.shape != (num_envs,):
        raise ValueError(f"seeds must be one for each of {num_envs} environments, got shape {given.shape}")
    if given.dtype.kind not in "iu" or ((given < 0) | (given >= 2**31)).any():
        raise ValueError(f"seeds must be whole numbers from 0 to 2**31 - 1, got {_some(given)}")
    return given.astype(np.int64)


def seeds_anew(seeds: NDArray[np.int64], incarnation: int) -> NDArray[np.int64]:
    """Return the seeds of environments that were lost, of which this is another incarnation."""
    anew = [np.random.SeedSequence((seed, incarnation)).generate_state(1)[0] >> 1 for seed in seeds.tolist()]
    return np.array(anew, np.int64)


class VectorEnvs:
    """A Gymnasium vector as `BatchedEnvs`.

    All of Gymnasium's autoreset modes work, and so do `VectorRealtimeDelay`, vectors of `RealtimeDelay`, and
    ``ale_py.AtariVectorEnv``. A vector that can step beside this process (``AtariVectorEnv``, ``AsyncVectorEnv``) does
    so from ``send`` on.

    A vector that has one generator for all rows (``CartPoleVectorEnv``) is seeded with one number made of all seeds.

    A vector may have arrays of another library. PyTorch's observations are then shown as tensors on their device, and
    all else in NumPy's arrays; actions are sent in the vector's own.

    Args:
        vector: The vector. It is closed with this object.

    Raises:
        ValueError: No vector, one that steps only some of its rows at a time, or spaces whose batches are no arrays.
    """

    def __init__(self, vector: VectorEnv) -> None:
        if not isinstance(vector, gym.vector.VectorEnv):
            raise ValueError(f"vector must be a gymnasium.vector.VectorEnv, got {vector!r}")
        if (batch_size := getattr(vector.unwrapped, "batch_size", vector.num_envs)) != vector.num_envs:
            raise ValueError(
                f"vector must step all {vector.num_envs} environments at once, got batch_size={batch_size}"
            )
        layer: Any = vector
        while isinstance(layer, gym.vector.VectorWrapper):
            if isinstance(layer, VectorRealtimeDelay) and layer.terms.outlasts_steps:
                raise ValueError(
                    "vector must decide on each frame of an episode, got rows with noops of their own or a latency "
                    "per='frame', whose decisions outlast a step: wrap each environment in a RealtimeDelay"
                )
            layer = layer.env
        check_space("the observation space", vector.single_observation_space)
        check_space("the action space", vector.single_action_space)
        self._vector = vector
        self._mode = autoreset_mode(vector)
        n = self.num_envs = vector.num_envs
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self._send, self._receive = _sides(vector)
        self._thread: ThreadPoolExecutor | None = None
        self._turns = TurnCheck()
        self._everyone = np.arange(n)
        self._everyone.flags.writeable = False  # it is handed out as env_ids
        self._filler = batch(self.action_space, [create_zero_array(self.action_space)] * n)
        self._in_step = False  # actions are sent, and their results are not yet taken
        self._step: Any = None  # these results, where they were received before they are taken
        self._lost = False  # whether a step is on its way is not known any more
        self._waits_again = False  # whether a wait for a step that was interrupted can be begun anew
        self._one_generator = False  # for all rows: the vector takes one seed
        self._library: Library | None = None  # of the vector's arrays, where they are not NumPy's

    def work_ahead(self) -> None:
        """Step in a thread from ``send`` on, unless the vector does so by itself."""
        if self._send is None:
            self._thread = thread = ThreadPoolExecutor(1, "environments")
            self._waits_again = True
            step: list[Future[Any]] = []

            def send(actions: Any) -> None:
                step[:] = [thread.submit(self._vector.step, actions)]

            self._send, self._receive = send, lambda: step[0].result()

    def begin(self, seeds: Sequence[int]) -> None:
        given = seeds_of(seeds, self.num_envs)
        if self._lost:
            raise RuntimeError(
                "a step of these environments was interrupted, and may still be going on: make them anew"
            )
        self._turns.begin()
        self._forget_step()
        n = self.num_envs
        observations, info = self._reset(given)
        self._library = None if is_of_numpy(observations) else Library(first_array(observations))
        self._observations, self._info = self._here(observations), self._numbers_of(info)
        self._acting = np.zeros(n, bool)  # the row's action was asked for and is sent
        self._deciding = np.array(self._info.get("realtime", {}).get("deciding", np.ones(n, bool)))
        self._first = np.ones(n, bool)  # its next row is the first of an episode
        self._reward = np.zeros(n, np.float32)
        self._terminal, self._truncated = np.zeros(n, bool), np.zeros(n, bool)
        self._interval, self._applied = np.zeros(n, np.int64), np.zeros(n, bool)
        self._executed: NDArray[np.bool_] | None = None  # [N, H], where actions are chunks
        self._sent: Any = None  # [N, ...], where others than the caller's actions were sent
        self._sent_mask = np.zeros(n, bool)
        self._unreported_episodes, self._unreported_reward = np.zeros(n, np.int64), np.zeros(n)
        self._final: dict[int, Any] = {}
        self._final_info: dict[int, Info] = {}
        self._delayed = "realtime" in self._info
        self._frame = self._start = np.zeros(n, np.int64)
        if self._delayed:
            self._note_frames(self._info["realtime"])
        self._fresh = True

    def recv(self) -> Shown:
        self._turns.before_recv()
        if self._fresh:
            self._fresh = False
        else:
            self._finish_step()
        while not np.count_nonzero(self._deciding):  # no row would be shown
            self._acting = np.zeros(self.num_envs, bool)
            self._start_step(own_copy(self._filler))
            self._finish_step()
            self._refuse_endless_waiting()
        everyone = np.count_nonzero(self._deciding) == self.num_envs
        shown = self._rows(self._everyone if everyone else np.flatnonzero(self._deciding))
        self._turns.show(shown.env_ids)
        return shown

    def send(self, env_ids: NDArray[np.int64], actions: Any) -> None:
        actions = mapped(_of_its_type, self._filler, actions)
        self._turns.answer(env_ids, actions)
        if len(env_ids) < self.num_envs:
            answered, actions = actions, own_copy(self._filler)
            put_rows(actions, env_ids, answered)
        self._acting = self._deciding
        self._start_step(actions)

    def _refuse_endless_waiting(self) -> None:
        """Refuse a delay that no episode outlasts, under which no row would ever decide."""
        if (self._unreported_episodes >= _MOST_UNDECIDED).all():
            self._turns.end()
            raise ValueError(
                "the delay of a vector must be shorter than its episodes, got "
                f"{_MOST_UNDECIDED} episodes of each environment in a row that ended before an action could land: take "
                "a shorter delay"
            )

    def cut(self) -> Shown:
        self._turns.before_cut()
        if self._in_step:
            self._finish_step()
        over = self._terminal | self._truncated
        going_on = np.flatnonzero(~over)
        self._truncated = ~self._terminal | self._truncated
        self._final |= finals(self._observations, going_on)
        if self._delayed:
            self._unreported_reward = self._unreported_reward + self._info["realtime"].get("carried_reward", 0.0)
        for i in going_on.tolist():
            self._final_info[i] = self._of_the_end(self._newest_info(i), i)
        self._turns.end()
        shown = self._rows(self._everyone)
        times = [shown.info[i]["realtime"] for i in range(self.num_envs)]
        ends = {key: np.array([each[key] for each in times], np.int64) for key in ("start", "frame")}
        return shown._replace(
            observation=self._batch([shown.final[i] for i in range(self.num_envs)]),
            first=np.zeros(self.num_envs, bool),
            realtime={**shown.realtime, **ends},
        )

    def statistics(self) -> list[Statistics]:
        """A step that goes on beside this process is waited for."""
        if self._in_step and self._receive is not None:
            self._receive_step()
        return self._statistics()

    def load_statistics(self, statistics: Sequence[Statistics], frozen: bool = False) -> None:
        self._forget_step()
        self._take_statistics(statistics, frozen)

    def close(self) -> None:
        self._turns.end(closed=True)
        self._forget_step()
        if self._thread is not None:
            self._thread.shutdown()
        self._vector.close()

    def _reset(self, seeds: NDArray[np.int64]) -> tuple[Any, Info]:
        if not self._one_generator:
            try:
                # AtariVectorEnv takes an array and no list; Gymnasium's vectors take a list of Python's numbers.
                of_each: Any = seeds if hasattr(self._vector.unwrapped, "ale") else seeds.tolist()
                return self._vector.reset(seed=of_each)
            except gym.error.Error:  # Gymnasium's generator takes one number
                self._one_generator = True
        return self._vector.reset(seed=int(np.random.SeedSequence(seeds.tolist()).generate_state(1)[0] >> 1))

    def _here(self, observations: Any) -> Any:
        """Return observations as they are shown: NumPy's arrays, or tensors."""
        if self._library is None or is_torch_array(first_array(observations)):
            return observations
        return on_host(observations)

    def _numbers_of(self, info: Info, ends: bool = False) -> Info:
        """Return an info in NumPy's arrays, without last observations; with the infos of ends where there are any."""
        if self._library is None:
            return info
        left_out = _LAST if ends else (*_LAST, "final_info")
        kept = {name: value for name, value in info.items() if name.removeprefix("_") not in left_out}
        return dict(on_host(kept))

    def _theirs(self, arrays: Any) -> Any:
        """Return arrays of NumPy's as those of the vector."""
        return arrays if self._library is None else mapped(self._library.array, arrays)

    def _batch(self, observations: list[Any]) -> Any:
        if self._library is None:
            return batch(self.observation_space, observations)
        return mapped(lambda *arrays: stacked(arrays), *observations)

    def _start_step(self, actions: Any) -> None:
        actions = self._theirs(actions)
        if self._send is None:
            self._actions = actions
        else:
            try:
                self._send(actions)
            except BaseException as error:
                self._lost = not isinstance(error, Exception) and not self._waits_again
                raise
        self._in_step = True

    def _forget_step(self) -> None:
        """Wait for a step that runs beside this process, if there is one."""
        if self._in_step and self._receive is not None and self._step is None:
            self._in_step = False
            with suppress(Exception):  # of a step that is not shown
                self._receive()
        self._in_step, self._step = False, None

    def _receive_step(self) -> None:
        """Receive the results of the step that was started, unless they are here."""
        if self._step is not None:
            return
        # A vector with threads of its own hears a signal when `recv` is over and the step is taken, which is then lost:
        # to wait for it again would last for ever. A thread or a process of ours keeps the step.
        self._in_step = False
        try:
            self._step = self._vector.step(self._actions) if self._receive is None else self._receive()
            self._in_step = True
        except BaseException as error:
            self._turns.end()  # no row could be shown of it
            if not isinstance(error, Exception):
                self._in_step = self._waits_again
                self._lost = self._receive is not None and not self._waits_again
            raise

    def _finish_step(self) -> None:
        """Take the results of the step that was started."""
        self._receive_step()
        observations, rewards, terminated, truncated, info = self._step
        self._in_step, self._step = False, None
        self._last = info
        if self._library is not None:
            observations = self._here(observations)
            rewards, terminated, truncated = on_host((rewards, terminated, truncated))
            info = self._numbers_of(info, ends=bool(np.any(terminated | truncated)))
        self._observations, self._info = observations, info
        self._shown_at = self._start, self._frame
        n, acting = self.num_envs, self._acting
        deciding = np.ones(n, bool)
        if self._delayed:
            realtime = info["realtime"]
            deciding = np.array(realtime.get("deciding", deciding))
            self._note_frames(realtime)
            self._applied = np.where(acting, realtime.get("applied", False), self._applied)
            self._interval = np.where(acting, realtime.get("interval", 0), self._interval)
            if "executed" in realtime:
                self._note_executed(acting, realtime["executed"][acting])
            if "sent" in realtime:
                which = np.flatnonzero(acting & realtime.get("_sent", True))
                self._note_sent(which, mapped(lambda sent: sent[which], realtime["sent"]))
            self._unreported_episodes = self._unreported_episodes + realtime.get("unreported_episodes", 0)
            self._unreported_reward = self._unreported_reward + realtime.get("unreported_reward", 0.0)
        else:
            self._frame = self._start = self._frame + 1
            self._applied = self._applied | acting
            self._interval = np.where(acting, 1, self._interval)
        if np.count_nonzero(acting) == n:
            self._reward = np.array(rewards, np.float32)
        else:  # a row that was held back keeps the reward of the end that it has to show
            self._reward = np.where(acting, rewards, self._reward).astype(np.float32)
            self._unreported_reward = self._unreported_reward + np.where(acting, 0.0, rewards)
        over = np.logical_or(terminated, truncated)
        if np.count_nonzero(over):
            deciding = self._note_ends(over, terminated, truncated, deciding)
        self._deciding = deciding

    def _note_ends(self, over: Any, terminated: Any, truncated: Any, deciding: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep how episodes ended; return who decides next."""
        n, info, acting = self.num_envs, self._info, self._acting
        ended = np.flatnonzero(over & acting)
        if len(ended):
            self._first = self._first | (over & acting)
            self._terminal = self._terminal | (terminated & acting)
            self._truncated = self._truncated | (truncated & acting)
            if self._mode is AutoresetMode.SAME_STEP:
                self._final |= self._same_step_finals(ended)
            else:
                self._final |= finals(self._observations, ended)
            for i in ended.tolist():
                last = self._final_info[i] = self._of_the_end(self._info_of_end(i), i)
                self._applied[i], self._interval[i] = last["realtime"]["applied"], last["realtime"]["interval"]
                if "executed" in last["realtime"]:
                    self._note_executed(i, last["realtime"]["executed"])
                if "sent" in last["realtime"]:
                    self._note_sent(i, last["realtime"]["sent"])
        # An episode without a decision; its reward is counted already, as that of a row that does not act.
        self._unreported_episodes = self._unreported_episodes + (over & ~acting)
        if self._mode is AutoresetMode.NEXT_STEP:
            deciding = deciding & ~over
        if not self._delayed:
            self._frame = self._start = np.where(over, -1 if self._mode is AutoresetMode.NEXT_STEP else 0, self._frame)
        if self._mode is AutoresetMode.DISABLED:
            observations, reset_info = self._vector.reset(options={"reset_mask": self._theirs(over)})
            self._observations, reset_info = self._here(observations), self._numbers_of(reset_info)
            self._info = own_info(info)
            for i in np.flatnonzero(over).tolist():
                put(self._vector, self._info, i, row(reset_info, i, n))
            if self._delayed:
                self._note_frames(self._info["realtime"])
                deciding = np.array(reset_info["realtime"].get("deciding", deciding))
        return deciding

    def _note_executed(self, rows: Any, executed: NDArray[np.bool_]) -> None:
        """Keep which entries of the chunks of some rows were applied, [R, H] or, of one row, [H]."""
        if self._executed is None:
            self._executed = np.zeros((self.num_envs, executed.shape[-1]), bool)
        self._executed[rows] = executed

    def _note_sent(self, rows: Any, sent: Any) -> None:
        """Keep what was really sent to some rows, where it differs from the caller's actions."""
        if self._sent is None:
            self._sent = mapped(np.zeros_like, self._filler)
        put_rows(self._sent, rows, sent)
        self._sent_mask[rows] = True

    def _info_of_end(self, i: int) -> Info:
        """Return a copy of the last info of an episode that has ended in this step."""
        info = self._info.get("final_info", {}) if self._mode is AutoresetMode.SAME_STEP else self._info
        return own_info(row(info, i, self.num_envs))

    def _statistics(self) -> list[Statistics]:
        """Return the statistics of the wrappers of each environment."""
        return statistics_of_rows(self._vector)

    def _take_statistics(self, statistics: Sequence[Statistics], frozen: bool) -> None:
        """Give each environment its own."""
        load_statistics_of_rows(self._vector, statistics, frozen)

    def _newest_info(self, i: int) -> Info:
        """Return a copy of the newest info of an episode that is cut."""
        return own_info(row(self._info, i, self.num_envs))

    def _same_step_finals(self, ended: NDArray[np.int64]) -> dict[int, Any]:
        """Return copies of the last observations."""
        if "final_obs" not in self._last:
            raise ValueError(
                f"vector must give info['final_obs'] at an end, as it resets in the same step: {self._vector}"
            )
        given = self._last["final_obs"]
        if self._library is not None and not (isinstance(given, np.ndarray) and given.dtype.hasobject):
            return finals(self._here(given), ended)
        if isinstance(given, np.ndarray) and not given.dtype.hasobject:
            return finals(given, ended)
        return {i: own_copy(row({"of": given}, i, self.num_envs)["of"]) for i in ended.tolist()}

    def _of_the_end(self, info: Info, i: int) -> Info:
        """Return the last info of an episode with the frames of its end, which a delay has given already."""
        times = {"start": int(self._start[i]), "frame": int(self._frame[i])}
        times |= {"interval": int(self._interval[i]), "applied": bool(self._applied[i])}
        return {**info, "realtime": {**times, **info.get("realtime", {})}}

    def _note_frames(self, realtime: Info) -> None:
        self._frame = np.asarray(realtime["frame"], np.int64)
        self._start = np.asarray(realtime["start"], np.int64)

    def _rows(self, ids: NDArray[np.int64]) -> Shown:
        """Return rows, which are shown now, and clear what they have accumulated."""
        everyone = len(ids) == self.num_envs
        now: dict[str, NDArray[Any]] = {}
        for name in _SHOWN_ONCE:
            array = getattr(self, name)
            if array is not None and everyone:
                now[name] = array
                setattr(self, name, np.zeros(array.shape, array.dtype))
            elif array is not None:
                now[name] = array[ids]
                array[ids] = 0
        final, info = self._final, self._final_info
        if everyone:
            self._final, self._final_info = {}, {}
        elif final:
            over = [i for i in ids.tolist() if i in final]
            final, info = {i: final.pop(i) for i in over}, {i: info.pop(i) for i in over}
        of_chunks = {} if self._executed is None else {"executed": now["_executed"]}
        if self._sent is not None:
            of_chunks |= {"sent": taken(self._sent, ids), "_sent": now["_sent_mask"]}
        return Shown(
            env_ids=ids,
            observation=copied(self._observations) if everyone else taken(self._observations, ids),
            reward=now["_reward"],
            first=now["_first"],
            terminal=now["_terminal"],
            truncated=now["_truncated"],
            final=final,
            info=info,
            realtime={
                "start": self._start[ids],
                "frame": self._frame[ids],
                "interval": now["_interval"],
                "applied": now["_applied"],
                "unreported_episodes": now["_unreported_episodes"],
                "unreported_reward": now["_unreported_reward"],
                **of_chunks,
            },
        )


def _of_its_type(leaf: NDArray[Any], given: Any) -> NDArray[Any]:
    """Return given actions as an array of the type of `leaf`; numbers with a fraction are no whole ones."""
    return np.asarray(given).astype(leaf.dtype, casting="same_kind", copy=False)


def _sides(vector: VectorEnv) -> tuple[Callable[[Any], Any] | None, Callable[[], Any] | None]:
    """Return how a step is begun and how it is received, where the environments step beside this process."""
    if isinstance(vector, AsyncVectorEnv):
        return vector.step_async, vector.step_wait
    # Of the class, because instances of wrappers pass on attributes of the wrapped one.
    if all(callable(getattr(type(vector), name, None)) for name in ("send", "recv")):
        both: Any = vector
        return both.send, both.recv
    return None, None
