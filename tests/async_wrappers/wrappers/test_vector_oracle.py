"""A plain loop over frames, one for each sub-environment, agrees with `VectorRealtimeDelay`.

The loop knows the three rules (see test_delay_oracle.py), that boundaries are every noops + 1 frames of the vector
environment, and what Gymnasium's autoreset modes are. Nothing of the project's schedule is used here. The policy is a
hash of its observation and each observation depends on all actions before it in its episode, so that a leak or a shift
by one frame changes everything after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.hashing_policy import DEFAULTS, Default, policy
from tests.worlds.recording_env import MEANINGS, mixed
from tests.worlds.schedule_cases import CASES
from tests.worlds.vector_world import DISABLED, NEXT_STEP, SAME_STEP, WORLDS, Sub, World, info_of, plain, wrapped


@dataclass
class Played:
    """An episode of one sub-environment; frames are those of the vector environment."""

    begin: int
    first: int  # the frame that decision 0 reads
    rewards: list[float] = field(default_factory=list)
    landed: list[int] = field(default_factory=list)  # frames on which an agent action was applied
    ends: tuple[bool, bool] = (False, False)
    last: Any = None  # the last sight
    reported: bool = False  # by a flag

    @property
    def end(self) -> int:
        return self.begin + len(self.rewards)


def chunk_of(observation: Any, length: int) -> NDArray[np.int64]:
    """Return a chunk that depends on all that the observation does."""
    return np.array([mixed(policy(observation), i) % len(MEANINGS) for i in range(length)])


def play_one(
    world: World, sub: Sub, default: Default, length: int = 0
) -> tuple[list[Any], list[Played], list[list[int]]]:
    """Return what one sub-environment showed at the beginning of each frame, its episodes and what it received.

    With a `length`, decisions are chunks of so many actions.
    """
    env, m, d = sub.make(), world.noops + 1, world.delay
    sights = [plain(env.reset())]
    episode, reported_in, resetting, last_action = Played(0, 0), -9, False, None
    episodes = [episode]
    for frame in range(d + world.steps * m):
        step = max(0, (frame - d) // m)
        if resetting:
            sights.append(plain(env.reset()))
            resetting = False
            continue
        read = frame - d
        if read >= episode.first and read % m == 0:
            sight = np.array(sights[read][0])
            action = last_action = chunk_of(sight, length)[d] if length else policy(sight)
            episode.landed.append(frame)
        elif length and episode.landed:
            effect = episode.landed[-1]
            action = chunk_of(np.array(sights[effect - d][0]), length)[frame - (effect - d)]
        else:
            action = default(frame, np.array(sights[frame][0]), last_action)
        observation, reward, terminated, truncated, info = env.step(action)
        episode.rewards.append(reward)
        sight = plain((observation, info))
        if terminated or truncated:
            episode.ends, episode.last = (terminated, truncated), sight
            episode.reported = reported_in < step - (1 if world.own_mode is NEXT_STEP else 0)
            if episode.reported:
                reported_in = step
            resetting = world.mode is NEXT_STEP
            begin = frame + (2 if resetting else 1)
            first = next(f for f in range(begin, begin + m) if f % m == 0)
            if world.own_mode is NEXT_STEP:
                first = max(first, (reported_in + 2) * m)
            episode, last_action = Played(begin, first), None
            episodes.append(episode)
            if not resetting:
                sight = plain(env.reset())
        sights.append(sight)
    return sights, episodes, env.episodes


def shown_of(sights: list[Any], episode: Played, frame: int) -> Any:
    """Return what an episode showed on a frame: its first one before it began, its last one at its end."""
    if episode.last is not None and frame >= episode.end:
        return episode.last[0]
    return sights[max(frame, episode.begin)][0]


def expected_steps(
    world: World, sights: list[Any], episodes: list[Played], length: int = 0, age: int | None = None
) -> list[dict[str, Any]]:
    """Return what each step returns of one sub-environment; with chunks if there is a `length`."""
    m, d = world.noops + 1, world.delay
    returned = []
    for step in range(world.steps):
        effect, stop = step * m + d, (step + 1) * m + d
        frames = range(0 if step == 0 else effect, stop)
        over = [episode for episode in episodes if episode.last is not None and episode.end - 1 in frames]
        reported = next((episode for episode in over if episode.reported), None)
        unreported = [episode for episode in over if not episode.reported]
        acting = next((episode for episode in episodes if effect in episode.landed), None)
        running = next(episode for episode in episodes if episode.last is None or episode.end > stop)
        assert acting is None or reported in (None, acting)

        paid, defaults, interval = 0.0, 0, 0
        if credited := acting or reported:
            last = min(stop, credited.end)
            since = effect if acting and acting.landed[0] < effect else credited.begin
            paid = sum(credited.rewards[since - credited.begin : last - credited.begin])
            defaults = last - since - (acting is not None)
            interval = last - effect if acting else 0
        unheard = all(frame >= stop for frame in running.landed)
        carried = sum(running.rewards[: max(0, stop - running.begin)]) if unheard else 0.0
        boundary = (step + 1) * m
        deciding = running.first <= boundary
        realtime = {
            "delay": d,
            "applied": acting is not None,
            "interval": interval,
            "default_frames": defaults,
            "deciding": deciding,
            "frame": max(0, stop - running.begin),
            "start": boundary - running.begin if deciding else -1,
            "observation_info": sights[boundary][1],
            "carried_reward": carried,
            "unreported_episodes": len(unreported),
            "unreported_reward": sum(sum(episode.rewards) for episode in unreported),
        }
        if length:
            realtime["executed"] = [d <= i < d + interval for i in range(length)]
            realtime["chunk_frames"] = interval - (acting is not None)
            realtime["default_frames"] -= interval - (acting is not None)
        if age is not None and running.begin <= stop:
            realtime["fresh_observation"] = shown_of(sights, running, stop - age)
        elif age is not None:  # on the frame of its reset, nothing of the next episode is known
            realtime["fresh_observation"] = sights[stop][0]
        observation, info = sights[boundary][0], dict(sights[stop][1])
        if reported:
            shown = min(boundary if acting else reported.first + m, reported.end)
            final, final_info = sights[shown] if shown < reported.end else reported.last
            of_the_end = {
                "frame": len(reported.rewards),
                "start": shown - reported.begin,
                "observation_info": final_info,
            }
            if age is not None:
                of_the_end["fresh_observation"] = shown_of(sights, reported, reported.end - age)
            if world.own_mode is SAME_STEP:
                keys = {"delay", "applied", "interval", "default_frames", "chunk_frames", "executed"} & realtime.keys()
                of_the_end = {**{key: realtime[key] for key in keys}, **of_the_end}
                info["final_obs"] = final
                info["final_info"] = {**reported.last[1], "realtime": of_the_end}
            else:
                observation, info = final, dict(reported.last[1])
                realtime.update(of_the_end)
        returned.append(
            {
                "observation": observation,
                "reward": paid,
                "ends": reported.ends if reported else (False, False),
                "info": {**info, "realtime": realtime},
            }
        )
    return returned


def by_the_wrapper(
    world: World, default_action: Any, length: int = 0, age: int | None = None
) -> tuple[list[list[dict[str, Any]]], list[list[list[int]]]]:
    """Return, for each sub-environment, what each step returned of it, and the actions that it received."""
    if length:
        env, recorders = wrapped(world, Chunk(length, default_action))
    else:
        env, recorders = wrapped(world, default_action)
    assert env.metadata["autoreset_mode"] is world.own_mode
    if age is not None:
        env.report_fresh("age", age)
    returned: list[list[dict[str, Any]]] = [[] for _ in world.subs]
    observations, info = env.reset()
    if age is not None:
        returned[:] = [[{"fresh": plain(info["realtime"]["fresh_observation"][i])}] for i in range(len(world.subs))]
    kept = []
    for _ in range(world.steps):
        actions = np.array([chunk_of(each, length) if length else policy(each) for each in observations])
        observations, rewards, terminated, truncated, info = env.step(actions)
        kept.append((observations, observations.copy()))
        for i, steps in enumerate(returned):
            steps.append(
                {
                    "observation": plain(observations[i]),
                    "reward": float(rewards[i]),
                    "ends": (bool(terminated[i]), bool(truncated[i])),
                    "info": info_of(info, i),
                }
            )
    for observations, as_returned in kept:
        np.testing.assert_array_equal(observations, as_returned)  # nobody writes into them afterwards
    return returned, [recorder.episodes for recorder in recorders]


@settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS, name=st.sampled_from(list(DEFAULTS)))
def test_each_sub_environment_lives_by_the_three_rules_between_common_boundaries(world: World, name: str) -> None:
    default_action, rule = DEFAULTS[name]
    if world.own_mode is DISABLED:  # the user resets: see test_vector_delay.py, on the identity
        world = World(world.delay, world.noops, world.subs, SAME_STEP, world.steps, world.reuse)
    returned, received = by_the_wrapper(world, default_action)
    for sub, steps, actions in zip(world.subs, returned, received, strict=True):
        sights, episodes, expected_actions = play_one(world, sub, rule)
        assert actions == expected_actions
        assert steps == expected_steps(world, sights, episodes)
        reported = sum(step["reward"] for step in steps)
        unreported = sum(step["info"]["realtime"]["unreported_reward"] for step in steps)
        carried = steps[-1]["info"]["realtime"]["carried_reward"]
        assert reported + unreported + carried == sum(sum(episode.rewards) for episode in episodes)


@settings(max_examples=CASES // 3, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS, name=st.sampled_from(list(DEFAULTS)), more=st.integers(0, 3))
def test_each_sub_environment_plays_its_own_chunks_and_none_of_an_episode_that_is_over(
    world: World, name: str, more: int
) -> None:
    default_action, rule = DEFAULTS[name]
    length = world.delay + world.noops + 1 + more
    if world.own_mode is DISABLED:
        world = World(world.delay, world.noops, world.subs, SAME_STEP, world.steps, world.reuse)
    returned, received = by_the_wrapper(world, default_action, length)
    for sub, steps, actions in zip(world.subs, returned, received, strict=True):
        sights, episodes, expected_actions = play_one(world, sub, rule, length)
        assert actions == expected_actions
        assert steps == expected_steps(world, sights, episodes, length)


@settings(max_examples=CASES // 2, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS, name=st.sampled_from(list(DEFAULTS)), data=st.data())
def test_each_sub_environment_is_shown_the_frame_on_which_its_action_lands(
    world: World, name: str, data: st.DataObject
) -> None:
    age = data.draw(st.integers(0, world.delay))
    default_action, rule = DEFAULTS[name]
    if world.own_mode is DISABLED:
        world = World(world.delay, world.noops, world.subs, SAME_STEP, world.steps, world.reuse)
    returned, received = by_the_wrapper(world, default_action, age=age)
    for sub, (first, *steps), actions in zip(world.subs, returned, received, strict=True):
        sights, episodes, expected_actions = play_one(world, sub, rule)
        assert actions == expected_actions
        assert steps == expected_steps(world, sights, episodes, age=age)
        # An episode that is over before its first action lands is shown at its end.
        landing = min(world.delay, episodes[0].end) if episodes[0].last is not None else world.delay
        assert first["fresh"] == shown_of(sights, episodes[0], landing - age)
