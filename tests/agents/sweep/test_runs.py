"""`train.py plot` of runs without a sweep: one run, several as mean and interval, wins, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.experiment.metrics import add_iteration
from async_wrappers.agents.sweep.figures import draw_runs
from async_wrappers.agents.sweep.runs import by_environment, find_runs, metrics_of, together
from async_wrappers.agents.sweep.tables import gather, read_table
from async_wrappers.agents.sweep.view import make_view
from tests.worlds.command_line import call, place, refused
from tests.worlds.made_up_sweep import D, made_up_sweep

__all__ = ["call", "place"]


def made_up_run(
    base_dir: Path, seed: int = 0, rate: str = "0.001", delay: str = "none", wins: bool = False, iterations: int = 3
) -> Path:
    (base_dir / "metrics").mkdir(parents=True)
    lines = []
    for number in range(iterations):
        returns = [10.0 * number + seed, 10.0 * number + seed + 2]
        line: dict[str, Any] = {
            "iteration": number,
            "frames": 100 * (number + 1),
            "train_episode_lengths": [60, 40],
            "train_episode_returns": returns,
            "train_average_return": sum(returns) / 2,
        }
        lines.append(line | ({"train_wins": min(number, 2), "train_losses": 1} if wins else {}))
    (base_dir / "metrics" / "iterations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = {"environment": "Duel-v0", "agent": "DQNAgent, 9 weights", "delay": delay, "seed": f"{seed}"}
    (base_dir / "metrics" / "run.json").write_text(
        json.dumps({**facts, "iterations": "3, each of 100 training frames"})
    )
    (base_dir / "config.gin").write_text(
        f"# by hand\nRunner.seed = {seed}\ncreate_optimizer.learning_rate = \\\n    {rate}\n"
    )
    return base_dir


def test_a_run_is_drawn_with_each_of_its_episodes(call: Any, place: Path) -> None:
    made_up_run(place / "run")
    done = call("plot", "run")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "run: return of an episode in training, newest: 21.00",
        "run/figures/learning_curve.png",
        "run/figures/learning_curve.svg",
    ]
    assert matplotlib.image.imread(place / "run" / "figures" / "learning_curve.png").std() > 0.02
    [axes] = draw_runs(by_environment(runs := find_runs([place / "run"])), metrics_of(runs, None, False), "mean").axes
    single = [line for line in axes.lines if line.get_marker() == "."]
    assert [list(line.get_xdata()) for line in single] == [[60, 100], [160, 200], [260, 300]]
    (curve,) = (line for line in axes.lines if line.get_marker() != ".")
    assert list(curve.get_ydata()) == [1, 11, 21]


def test_runs_that_differ_in_their_seed_alone_make_one_curve_of_their_means(call: Any, place: Path) -> None:
    for seed in (0, 3, 6):
        made_up_run(place / f"{seed}", seed)
    done = call("plot", "0", "3", "6")
    assert done.code == 0, done.err
    said, *written = done.out.splitlines()
    assert said == "return of an episode in training, newest: 24.00 [21.00, 27.00] over 3 runs"
    assert [Path(each) for each in written] == [place / "figures" / f"learning_curve.{kind}" for kind in ("png", "svg")]
    runs = find_runs([place])
    [axes] = draw_runs(by_environment(runs), metrics_of(runs, None, False), "mean").axes
    *single, mean = (list(line.get_ydata()) for line in axes.lines)
    assert mean == [4, 14, 24]
    assert sorted(single) == [[1, 11, 21], [4, 14, 24], [7, 17, 27]]
    low, high = (
        axes.collections[0].get_paths()[0].vertices[:, 1].min(),
        axes.collections[0].get_paths()[0].vertices[:, 1].max(),
    )
    assert (low, high) == (1, 27)


def test_a_directory_that_holds_runs_is_drawn_with_a_curve_for_each_kind(call: Any, place: Path) -> None:
    for seed in (0, 1):
        made_up_run(place / "all" / f"slow{seed}", seed, rate="0.1")
        made_up_run(place / "all" / f"fast{seed}", seed)
        made_up_run(place / "all" / "delayed" / f"{seed}", seed, delay="2 frames", iterations=2)
    done = call("plot", "all", "--output", "here")
    assert done.code == 0, done.err
    assert sorted(line.partition(": ")[0] for line in done.out.splitlines()[:3]) == [
        "delay 2 frames",
        "no delay, learning_rate 0.001",
        "no delay, learning_rate 0.1",
    ]
    assert (place / "here" / "learning_curve.svg").is_file()


def test_runs_are_told_apart_by_a_binding_though_their_networks_differ_in_size_too(place: Path) -> None:
    for window, weights in ((0, 8), (4, 9), (9, 9)):
        run = made_up_run(place / "runs" / f"{window}")
        facts = run / "metrics" / "run.json"
        facts.write_text(facts.read_text().replace("9 weights", f"{weights} weights"))
        with (run / "config.gin").open("a") as file:
            file.write(f"create_actor_critic.action_window = {window}\n")
    ((_, curves),) = by_environment(find_runs([place / "runs"])).items()
    assert {*curves} == {"action_window 0", "action_window 4", "action_window 9"}


def test_returns_of_others_are_drawn_in_one_panel_beside_a_metric_of_ours(call: Any, place: Path) -> None:
    lines = made_up_run(place / "mine") / "metrics" / "iterations.jsonl"
    evaluated = [json.loads(line) for line in lines.read_text().splitlines()]
    lines.write_text("".join(json.dumps(line | {"eval_average_return": 5.0}) + "\n" for line in evaluated))
    (place / "theirs.csv").write_text("frames,return\n100,3\n200,4\n")
    made_up_sweep(place / "sb3", [f"{D} = 1"], score=lambda point, seed: {"frames": [100, 200], "return": [1, 2]})
    places = ["mine", "theirs.csv", "sb3"]
    for metric, last in (("eval_average_return", "5.00"), ("train_average_return", "21.00")):
        done = call("plot", *places, "--metric", metric, "--output", "one.png")
        assert done.code == 0, done.err
        said = dict(line.split(": return of an episode in ") for line in done.out.splitlines()[:-1])
        newest = [words.partition("newest: ")[2].split()[0] for words in said.values()]
        assert newest == [last, "4.00", "2.00"]
        runs = find_runs([place / each for each in places], metric)
        [axes] = draw_runs(by_environment(runs), metrics_of(runs, metric, False), "mean").axes
        assert len({line.get_label() for line in axes.lines} - {"_"}) == 3


@pytest.mark.parametrize(
    "words", [["run"], ["sweep"], ["run", "--output", "taken"], ["run", "--output", "taken/x.png"]]
)
def test_a_place_that_cannot_be_written_is_one_sentence(call: Any, place: Path, words: list[str]) -> None:
    made_up_run(place / "run")
    made_up_sweep(place / "sweep")
    for name in ("run/figures", "sweep/figures", "taken"):
        (place / name).touch()
    done = call("plot", *words)
    assert done.code == 2
    assert re.search(r"^train\.py: \S+ cannot be read or written \(.* (exists|directory)\): figures of", done.err, re.M)
    assert "Traceback" not in done.err


def test_a_full_disk_is_one_sentence(call: Any, place: Path) -> None:
    made_up_run(place / "run")
    (place / "a.png").symlink_to("/dev/full")
    done = call("plot", "run", "--output", "a.png")
    said = "train.py: No space left on device, writing a.png: free space, and give the command again\n"
    assert (done.code, done.err) == (1, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"frames,return\n1,{cell}\n", "must have numbers in return, got") for cell in ("nan", "-inf", "9" * 400)),
        *((f"frames,return\n{cell},1\n", "must have numbers in frames, got") for cell in ("inf", "9" * 5000, "1e308")),
        ("frames,frames,return\n1,2,3\n", "must have one column frames, got 2"),
        ("frames,return\n1," + "2" * 200_000, "cannot be read as a table (field larger than field limit"),
    ],
)
def test_a_table_of_what_cannot_be_drawn_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ValueError) as caught:
        read_table(tmp_path / "table.csv", ("frames", "return"))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_output_that_names_a_picture_is_that_file(call: Any, place: Path) -> None:
    made_up_run(place / "run")
    assert call("plot", "run", "--output", "there/both.png").out.splitlines()[-1] == "there/both.png"
    assert [path.name for path in (place / "there").iterdir()] == ["both.png"]
    assert (place / "there" / "both.png").read_bytes().startswith(b"\x89PNG")


def test_wins_are_drawn_by_a_flag(call: Any, place: Path) -> None:
    for seed in (0, 1):
        made_up_run(place / f"{seed}", seed, wins=True)
    done = call("plot", "0", "1", "--wins", "--output", "w")
    assert done.out.splitlines() == [
        "share of training episodes won, newest: 1.00 [1.00, 1.00] over 2 runs",
        "w/wins.png",
        "w/wins.svg",
    ]
    runs = find_runs([place / "0", place / "1"])
    [axes] = draw_runs(by_environment(runs), metrics_of(runs, None, True), "mean").axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[0, 0.5, 1]] * 3


def test_any_number_of_an_iteration_is_drawn_by_its_name(call: Any, place: Path) -> None:
    made_up_run(place / "run", wins=True)
    assert "train_losses" in refused(call("plot", "run", "--metric", "nothing"))
    assert "run/figures/runs_train_losses.png" in call("plot", "run", "--metric", "train_losses").out


def test_a_run_of_train_py_is_drawn(call: Any, place: Path) -> None:
    assert call("--base_dir", "run", "--gin_files", "mine.gin").code == 0
    done = call("plot", "run")
    assert done.code == 0, done.err
    assert [line.partition(", newest")[0] for line in done.out.splitlines()[:2]] == [
        "run: return of an episode in training",
        "run: return of an episode in evaluation",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no directory nowhere: name a --base_dir of train.py, or a CSV"),
        (["run", "nowhere"], "there is no directory nowhere: name a --base_dir of train.py, or a CSV"),
        (["run/checkpoints"], "run/checkpoints holds no sweep and no run with an iteration"),
        (
            ["run", "bad.csv"],
            "bad.csv must have columns frames and return, got epoch, loss, without frames and return",
        ),
        (
            ["sweep", "bad.csv"],
            "bad.csv must have columns delay and return, got epoch, loss, without delay and return",
        ),
        (["run", "nowhere.csv"], "nowhere.csv cannot be read as a table ([Errno 2]"),
        (["words.csv"], "words.csv must have numbers in return, got 'much' in row 2"),
        (["empty.csv"], "empty.csv has no row below the names of its columns: add its results"),
        (["sweep", "scores.csv", "--x", "RealtimeDelay.noops"], "scores.csv must have columns noops and return, got"),
        (["sweep", "other", "--x", "gamma"], "sweep has no key gamma, but delay, noops: name another with --x"),
        (["sweep", "other", "--metric", "mood"], "metric must be one of frames, train_average_return, final_return"),
        (["run", "scalars"], "scalars has no learning curve: let its trials return lists, or leave it out"),
        (["run", "new"], "new has no finished iteration yet: let the run go on, or leave it out"),
        (["run", "broken"], "broken/metrics/iterations.jsonl is damaged ("),
        (["run", "--wins"], "--wins: no episode of run says whether it was won (info['won'])"),
        (["sweep", "--wins"], "--wins: no episode of sweep says whether it was won (info['won'])"),
        (["run", "--wins", "--metric", "frames"], "--wins and --metric exclude each other, got --metric frames"),
        (["run", "--metric", "mood"], "metric must be one of frames, iteration, train_average_return, got 'mood'"),
        (["run", "--x", "RealtimeDelay.delay"], "--x is of sweeps: runs are drawn against training frames"),
        (["run", "--output", "here.jpg"], "--output must be NAME.png, NAME.svg or a directory, got here.jpg"),
        (["sweep", "--output", "here"], "--output is of runs: the figures of the sweep sweep go to sweep/figures"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(call: Any, place: Path, words: list[str], said: str) -> None:
    made_up_run(place / "run")
    made_up_run(place / "new", iterations=0)
    (place / "run" / "checkpoints").mkdir()
    (made_up_run(place / "broken") / "metrics" / "iterations.jsonl").write_text("[")
    for name in ("sweep", "other"):
        made_up_sweep(place / name)
    made_up_sweep(place / "scalars", score=lambda point, seed: {"score": 1.0})
    (place / "bad.csv").write_text("epoch,loss\n1,2\n")
    (place / "scores.csv").write_text("delay,return\n1,2\n")
    (place / "words.csv").write_text("frames,return\n1,2\n2,much\n")
    (place / "empty.csv").write_text("frames,return\n")
    assert said in refused(call("plot", *words))


def test_runs_sweeps_and_tables_are_one_figure_with_environments_apart(call: Any, place: Path) -> None:
    for seed in (0, 1):
        path = made_up_run(place / f"{seed}", seed, delay="2 frames") / "metrics" / "run.json"
        path.write_text(path.read_text().replace("Duel-v0", "Duel-v0, 16 at once"))
    (place / "peer.csv").write_text(
        "# from another trainer\nframes,return,seed,environment,agent,delay\n"
        "200,5,0,Duel-v0,Peer,2\n100,3,0,Duel-v0,Peer,2\n100,7,1,Duel-v0,Peer,2\n200,9,1,Duel-v0,Peer,2\n"
        "100,1,0,Other-v0,Peer,2\n"
    )
    made_up_sweep(place / "sb3", [f"{D} = 1, 8"], seeds=2)
    done = call("plot", "0", "1", "peer.csv", "sb3", "--output", "all.png")
    assert done.code == 0, done.err
    said = [line.partition(":")[0] for line in done.out.splitlines()]
    assert said[:3] == ["Duel-v0, DQNAgent", "Duel-v0, Peer", "Other-v0, Peer"]
    runs = find_runs([place / "0", place / "1", place / "peer.csv"])
    duel, other = draw_runs(by_environment(runs), metrics_of(runs, None, False), "mean").axes
    assert (duel.get_title(), other.get_title()) == ("Duel-v0", "Other-v0")
    assert duel.get_ylabel().replace("\n", " ") == "return of an episode in training"
    curves = {line.get_label(): line for line in duel.lines if line.get_label() != "_"}
    assert set(curves) == {"DQNAgent", "Peer"}
    assert [list(each) for each in curves["Peer"].get_data()] == [[100, 200], [5, 7]]
    assert curves["Peer"].get_color() == other.lines[0].get_color()
    # Of one environment the curves are named by what they differ in, and what does not say its own is of that one.
    (place / "nameless.csv").write_text("frames,return\n100,3\n200,4\n")
    one = by_environment(find_runs([place / "0", place / "nameless.csv", place / "sb3"]))
    assert {name: set(curves) for name, curves in one.items()} == {
        "Duel-v0": {"DQNAgent, delay 2 frames", "nameless", "sb3, delay 1 frame", "sb3, delay 8 frames"}
    }


def test_runs_that_end_at_different_frames_are_counted_for_each_end(call: Any, place: Path) -> None:
    rows = [f'{1000 * k},{seed},"DQN, told",{k + seed}' for seed in (0, 1) for k in range(1, 4 + 2 * seed)]
    (place / "peer.csv").write_text("\n".join(["frames,seed,agent,return", *rows]))
    made_up_sweep(place / "sweep", [f"{D} = 1"], seeds=1)
    done = call("plot", "sweep", "peer.csv")
    assert done.out.splitlines()[1] == (
        "DQN, told: return of an episode in training, newest: 6.00 at 5,000 frames (1 of 2 runs), "
        "3.50 [3.00, 4.00] at 3,000 frames (2 of 2 runs)"
    )


def test_trials_of_others_are_drawn_while_they_run(call: Any, place: Path) -> None:
    sweep = made_up_sweep(place / "sweep", [f"{D} = 1, 8"], seeds=1)
    for number, trial in enumerate(sorted((sweep / "trials").iterdir())):
        (trial / "result.json").unlink()
        for frames in (100, 200):
            add_iteration(trial, frames=frames, skill=frames / 100 + number)
    (place / "peer.csv").write_text("frames,skill\n100,4\n")
    done = call("plot", "sweep", "peer.csv", "--metric", "skill")
    assert done.out.splitlines()[:2] == [
        "sweep, delay 1 frame: skill, newest: 2.00",
        "sweep, delay 8 frames: skill, newest: 3.00",
    ]


@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=8, unique=True), min_size=1, max_size=4))
def test_curves_on_a_line_stay_on_it_and_none_is_counted_after_its_end(ends: list[list[int]]) -> None:
    curves = [[(10.0 * x, 3.0 * x + 1) for x in sorted(each)] for each in ends]
    points = together(curves)
    assert points[-1][0] == max(curve[-1][0] for curve in curves)
    for x, values in points:
        inside = sum(curve[0][0] <= x <= curve[-1][0] for curve in curves)
        assert inside <= len(values) <= len(curves)
        on_the_line = [value for value in values if value == pytest.approx(0.3 * x + 1)]
        assert len(on_the_line) >= inside


def test_several_sweeps_and_tables_are_scores_against_one_key(call: Any, place: Path) -> None:
    made_up_sweep(place / "ours")
    made_up_sweep(place / "longer", [f"{D} = 1, 70"], score=lambda point, seed: {"score": 2.0 * seed})
    (place / "theirs.csv").write_text("delay,noops,return\n1,0,10\n1,0,14\n8,8,3\n")
    done = call("plot", "ours", "longer", "theirs.csv", "--output", "scores.png")
    assert done.code == 0, done.err
    said = dict(line.split(": ") for line in done.out.splitlines()[:-1])
    assert said["theirs, asynchronous, delay 1"] == "12.00 [10.00, 14.00] over 2"
    assert said["theirs, sequential, delay 8"] == "3.00 over 1"
    assert said["longer, asynchronous, delay 70"] == "2.00 [0.00, 4.00] over 3"
    assert sum(name.startswith("ours, ") for name in said) == 6
    assert matplotlib.image.imread(place / "scores.png").std() > 0.02


def test_a_key_that_one_of_several_sweeps_lacks_is_not_in_its_name(place: Path) -> None:
    made_up_sweep(place / "peer", [f"{D} = 5", "Peer.told = False, True"])
    made_up_sweep(place / "ours", [f"{D} = 5"])
    plan, rows = gather([place / "peer", place / "ours"], "delay", None)
    (panel,) = make_view(plan, rows, x="delay").panels
    assert list(panel.curves) == ["peer, told False", "peer, told True", "ours"]


def test_scores_of_several_environments_are_apart(place: Path) -> None:
    (place / "a.csv").write_text("delay,return,environment\n1,10,Duel-v0\n2,11,Duel-v0\n1,5,Other-v0\n")
    (place / "b.csv").write_text("delay,return,environment,agent\n1,12,Duel-v0,Peer\n")
    plan, rows = gather([place / "a.csv", place / "b.csv"], "delay", None)
    panels = {panel.title: panel for panel in make_view(plan, rows, x="delay").panels}
    assert {title: sorted(panel.curves) for title, panel in panels.items()} == {
        "Duel-v0": ["Peer", "a"],
        "Other-v0": ["a"],
    }
