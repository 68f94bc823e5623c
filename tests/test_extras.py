"""Without an extra, whatever needs it says so in one sentence, with the line that installs it; and train.py alike."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import warnings
from argparse import Namespace
from collections.abc import Callable
from configparser import ConfigParser
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.error import DependencyNotInstalled
from gymnasium.wrappers import DtypeObservation

from async_wrappers.agents import LIBRARIES
from async_wrappers.agents.cli import watch
from async_wrappers.agents.demonstrations.dataset import DatasetWriter, read_demonstrations
from async_wrappers.agents.demonstrations.players import Keyboard
from async_wrappers.agents.experiment.video import check_recordable
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.sweep.sweeping import sweep
from async_wrappers.agents.trained.export import export
from async_wrappers.analysis.scaling import processes_needed, scaling_picture
from async_wrappers.analysis.scoring import score_policy
from async_wrappers.analysis.timeline import timeline
from async_wrappers.envs import create_atari_environment, create_gym_environment, create_minatar_environment
from async_wrappers.extras import ignored_warnings
from async_wrappers.latency import Constant
from async_wrappers.live.adapters.openpi import OpenPI
from async_wrappers.live.report.picture import timing_picture
from async_wrappers.onnx_policy import OnnxPolicy
from async_wrappers.schedule.simulated import SimulatedSchedule
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.sweeps import play

ROOT = Path(__file__).parents[1]


def _watch(folder: Path) -> None:
    watch.run(Namespace(dir=[str(folder)], text=False, host="127.0.0.1", port=0))


GRID = {"delay": [1]}
SPACE = gym.spaces.Box(0, 1)
# A user's way to each extra, with the module of it that is missing.
WAYS: list[tuple[str, str, Callable[[Path], object]]] = [
    ("atari", "ale_py", lambda _: create_atari_environment("Pong", obs_type="ram")),
    ("atari", "cv2", lambda _: create_atari_environment("Pong")),
    ("gameboy", "cv2", lambda _: import_module("async_wrappers.envs.gameboy.emulator")),
    ("gameboy", "pyboy", lambda _: import_module("async_wrappers.envs.gameboy.emulator").Console(bytes(2**15))),
    ("lz4", "lz4", lambda _: create_replay(gym.spaces.Box(0, 255, (84, 84), "uint8"), compression="lz4", capacity=9)),
    ("minatar", "minatar", lambda _: create_minatar_environment("breakout")),
    ("minatar", "minatar", lambda _: score_policy(lambda: lambda observation: 0)),
    ("minari", "h5py", lambda folder: DatasetWriter(str(folder / "new"), SPACE, SPACE)),
    ("minari", "minari", lambda folder: list(read_demonstrations(str(folder)))),
    ("onnx", "onnxruntime", lambda folder: OnnxPolicy(folder / "agent.onnx")),
    ("onnx", "onnxscript", lambda folder: export(None, folder / "agent.onnx")),
    ("openpi", "msgpack", lambda _: OpenPI("ws://127.0.0.1:9")),
    ("openpi", "websockets", lambda _: OpenPI("ws://127.0.0.1:9")),
    ("play", "pygame", lambda _: Keyboard(RecordingEnv(render_mode="rgb_array"))),
    ("plot", "matplotlib", lambda _: timeline(SimulatedSchedule(Constant(0.1), 1, 60, "sequential"))),
    ("plot", "matplotlib", lambda _: scaling_picture(processes_needed(seconds=1), "")),
    ("plot", "matplotlib", lambda _: timing_picture([], 1, {"total": 1, "fresh": 0, "default": 1})),
    ("ray", "ray", lambda folder: sweep(play, GRID, 1, folder / "s", engine="ray")),
    ("ray", "ray", lambda folder: sweep(play, GRID, 1, folder / "s", engine="ray", search="random")),
    ("video", "moviepy", lambda _: check_recordable(RecordingEnv(render_mode="rgb_array"))),
    ("wandb", "wandb", lambda folder: sweep(play, GRID, 1, folder / "s", wandb_project="delays")),
    ("watch", "psutil", _watch),
    ("watch", "rich", _watch),
    ("watch", "werkzeug", _watch),
]
# Gymnasium's own environments that need an extra of ours.
BY_ID = [
    ("HalfCheetah-v5", "mujoco", "mujoco"),
    ("LunarLanderContinuous-v3", "box2d", "Box2D"),
    ("BipedalWalker-v3", "box2d", "Box2D"),
]


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a library be missing, and what of ours has imported it be imported anew."""

    def hide_library(name: str) -> None:
        ours = ("async_wrappers.envs.gameboy.emulator", "async_wrappers.agents.sweep.ray_engine")
        ours += tuple(f"async_wrappers.agents.watch.{each}" for each in ("browser", "machine_load", "text", "watcher"))
        for module in [each for each in sys.modules if f"{each}.".startswith((f"{name}.", *ours))]:
            if module in ours:
                monkeypatch.delitem(sys.modules, module)
            else:
                monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setitem(sys.modules, name, None)

    return hide_library


@pytest.mark.parametrize(("extra", "library", "way"), WAYS, ids=[f"{extra}-{lib}" for extra, lib, _ in WAYS])
def test_a_missing_library_is_one_sentence_before_anything_is_written(
    extra: str, library: str, way: Callable[[Path], object], hide: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "metadata.json").write_text("{}")
    hide(library)
    sentence = rf"[^\n]+ needs the extra '{extra}' \([^\n]*{library}[^\n]*\): pip install 'async-wrappers\[{extra}\]'"
    with pytest.raises(DependencyNotInstalled) as raised:
        way(tmp_path)
    assert re.fullmatch(sentence, str(raised.value))
    assert [path.name for path in tmp_path.iterdir()] == ["metadata.json"]


def test_a_sweep_without_parquet_is_run_without_a_word_but_leaves_no_old_table_behind(
    hide: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hide("pyarrow")
    remedy = r"needs the extra 'parquet' \([^\n]*pyarrow[^\n]*\): pip install 'async-wrappers\[parquet\]'"
    table = sweep(play, GRID, 1, tmp_path)
    assert "parquet" not in "".join(capsys.readouterr())
    written, parquet = table.read_bytes(), tmp_path / "results.parquet"
    assert not parquet.exists()

    parquet.write_text("of an earlier start")
    with pytest.raises(DependencyNotInstalled) as raised:
        sweep(play, GRID, 2, tmp_path)
    assert re.fullmatch(rf"going on with {re.escape(str(parquet))} {remedy}", str(raised.value))
    assert (table.read_bytes(), parquet.read_text()) == (written, "of an earlier start")


def test_a_game_of_the_game_boy_by_its_id_says_it_too(hide: Callable[[str], None]) -> None:
    hide("cv2")
    for name in [each for each in sys.modules if each.startswith("async_wrappers.envs.gameboy")]:
        del sys.modules[name]
    with pytest.raises(ValueError, match=r"'async_wrappers/Tetris-v0' .*pip install 'async-wrappers\[gameboy\]'"):
        create_gym_environment("async_wrappers/Tetris-v0")


@pytest.mark.parametrize(("environment_id", "extra", "library"), BY_ID)
def test_an_environment_of_gymnasiums_by_its_id_says_it_too(
    environment_id: str, extra: str, library: str, hide: Callable[[str], None]
) -> None:
    hide(library)
    for name in [each for each in sys.modules if each.startswith(f"gymnasium.envs.{extra}")]:
        del sys.modules[name]
    with pytest.raises(ValueError, match="needs") as raised:
        create_gym_environment(environment_id)
    sentence = rf"environment_id '{environment_id}' needs the extra '{extra}' \([^\n]*{library}[^\n]*\)"
    assert re.fullmatch(rf"{sentence}: pip install 'async-wrappers\[{extra}\]'", str(raised.value))


def hidden(names: tuple[str, ...], code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process without some libraries; `words` are the command line that it sees."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({names!r})); sys.path.insert(0, {str(ROOT)!r}); "
    return subprocess.run([sys.executable, "-c", hide + code, *words], capture_output=True, text=True)


def test_agents_without_one_of_its_libraries_is_refused_in_one_sentence() -> None:
    code = f"""
for library in {LIBRARIES}:
    sys.modules[library] = None
    try:
        import async_wrappers.agents
    except ModuleNotFoundError as refusal:
        print(refusal)
    del sys.modules[library]
"""
    assert hidden((), code).stdout.splitlines() == [
        f"async_wrappers.agents needs the extra 'agents' (No module named {library!r}): "
        "pip install 'async-wrappers[agents]'"
        for library in LIBRARIES
    ]


@pytest.mark.parametrize(
    ("library", "module", "what"),
    [
        ("pytest", "environments", "async_wrappers.testing"),
        ("hypothesis", "staggers", "StaggerContract"),
        ("psutil", "backends", "BackendContract"),
    ],
)
def test_a_contract_without_one_of_its_libraries_is_refused_in_one_sentence(
    library: str, module: str, what: str
) -> None:
    done = hidden((library,), f"import async_wrappers.testing.{module}")
    sentence = f"{what} needs the extra 'testing' (import of {library} halted; None in sys.modules)"
    error = "gymnasium.error.DependencyNotInstalled"
    assert done.stderr.splitlines()[-1] == f"{error}: {sentence}: pip install 'async-wrappers[testing]'"


def test_the_commands_on_a_bare_install_are_refused_in_one_line() -> None:
    code = """
import runpy
for words in ([], ["list"], ["evaluate", "--base_dir", "x"], ["--help"]):
    sys.argv = ["train.py", *words]
    try:
        runpy.run_path(sys.path[0] + "/train.py", run_name="__main__")
    except SystemExit as end:
        print(end.code)
"""
    done = hidden(LIBRARIES, code)
    assert (done.stdout.split(), done.stderr.count("\n")) == (["2"] * 4, 4), done.stderr
    refusal = "train.py: async_wrappers.agents needs the extra 'agents' (No module named 'absl')"
    assert all(line.startswith(refusal) for line in done.stderr.splitlines())


def test_train_py_where_nothing_is_installed_is_one_line() -> None:
    code = "import runpy; runpy.run_path(sys.path[0] + '/train.py', run_name='__main__')"
    done = hidden(("gymnasium",), code)
    assert done.returncode == 2
    assert re.fullmatch(
        r"train\.py: [^\n]*gymnasium[^\n]*pip install -e '\.\[all\]' -c constraints\.txt\n", done.stderr
    )


def test_the_planner_needs_no_extra() -> None:
    code = "from async_wrappers import console; sys.exit(console.main(['async-wrappers', *sys.argv[1:]]))"
    libraries = (*LIBRARIES, "ale_py", "cv2", "pyboy", "pygame")
    done = hidden(libraries, code, "plan", "--latency-ms", "50", "--fps", "60", "--seconds", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("verdict") and "\nlatency " in done.stdout


def test_a_policy_is_scored_with_the_extra_minatar_alone() -> None:
    code = "import types; sys.modules['mine'] = mine = types.ModuleType('mine'); "
    code += "mine.make = lambda: lambda observation: 0; "
    code += "from async_wrappers import console; sys.exit(console.main(['async-wrappers', *sys.argv[1:]]))"
    libraries = (*LIBRARIES, "ale_py", "cv2", "pyboy", "pygame", "matplotlib", "seaborn")
    words = ("score", "--policy", "mine:make", "--games", "breakout", "--delays", "0", "--episodes", "1")
    done = hidden(libraries, code, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("realtime MinAtar")
    missing = hidden(("minatar",), code, *words)
    assert missing.returncode == 2
    assert re.fullmatch(
        r"python -m async_wrappers score: a game of MinAtar needs the extra 'minatar' .*\n", missing.stderr
    )


def test_setup_names_every_extra_and_all_and_dev_hold_what_they_say() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras: dict[str, Any] = dict(setup["options.extras_require"])
    tried = {extra for extra, _, _ in WAYS} | {extra for _, extra, _ in BY_ID}
    simulators = {"brax", "gymnax", "maniskill", "mjlab", "playground"}  # whose environments a user makes
    assert tried | simulators | {"agents", "all", "dev", "docs", "parquet", "testing"} == extras.keys()
    core = setup["options"]["install_requires"].split()
    assert [re.split("[><=]", need)[0] for need in core] == ["array-api-compat", "cloudpickle", "gymnasium", "numpy"]
    assert extras["all"].strip() == "async-wrappers[agents,atari,gameboy,minari,minatar,play,plot,video,watch]"
    assert "async-wrappers[all,box2d,lz4,mujoco,onnx,openpi,testing]" in extras["dev"].split()


def test_filters_of_warnings_are_touched_in_one_place_which_knows_of_other_threads() -> None:
    sources = [path for package in ("async_wrappers", "agents") for path in (ROOT / package).rglob("*.py")]
    touch = {path for path in sources if re.search(r"catch_warnings|simplefilter|filterwarnings", path.read_text())}
    testing = {path for path in touch if "testing" in path.parts}
    assert touch - testing == {ROOT / "async_wrappers" / "extras.py"}


def test_warnings_are_ignored_in_one_thread_alone_whoever_puts_filters_back_meanwhile() -> None:
    entered, told = threading.Barrier(2), threading.Barrier(2)

    def other() -> None:
        entered.wait(60)
        warnings.warn("of the library, in the other thread", UserWarning, stacklevel=1)
        told.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with warnings.catch_warnings():  # left after the block has begun
            with ignored_warnings("of the lib"), ignored_warnings("of another"):
                entered.wait(60)
                told.wait(60)
                warnings.warn("of the library", UserWarning, stacklevel=1)
                warnings.warn("of another one", DeprecationWarning, stacklevel=1)
                warnings.warn("a user's", UserWarning, stacklevel=1)
            warnings.warn("of the library, after the block", UserWarning, stacklevel=1)
    thread.join(60)
    texts = [str(each.message) for each in shown]
    assert texts == ["of the library, in the other thread", "a user's", "of the library, after the block"]


def test_environments_that_threads_make_leave_the_filters_as_they_would_find_them() -> None:
    def make() -> None:
        for _ in range(5):
            create_gym_environment("CartPole-v1", wrappers=[partial(DtypeObservation, dtype="float16")]).close()

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        warnings.warn("a later one", UserWarning, stacklevel=1)
    assert [str(each.message) for each in shown] == ["a later one"]
