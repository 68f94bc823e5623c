"""An arm that waits for nobody, a slow policy on a server, and the server killed in the middle.

``python docs/examples/robot/robot.py`` plays 12 seconds of real time and prints the report. It writes ``arm_ages.png``,
both ages over time, ``arm.gif``, the arm, and ``arm.json``, the latencies that docs/live/circle.md trains under.
``--policy MODULE:FUNCTION`` plays a policy of your own, which gives chunks of positions. docs/live/robots.md walks
through both.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from ctypes.util import find_library
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__" and find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported: it renders without a screen
from arm import FPS, HZ, MODEL, Arm
from policy import CV, LATENCY, make_policy

from async_wrappers import AsyncRunner, Chunk, Limits, RampDown
from async_wrappers.cli.command_arguments import Parser

HERE = Path(__file__).parent
WORKERS, PLAYOUT = 4, 4  # inferences at a time; frames from a reading until its action is due, as `arm.gin` has them
CHUNK, RATE = 25, 3.0  # positions that a policy of your own gives at once; their largest change, radians per second
HOLD, RAMP = 3, 25  # frames on which the last speed is held where no action is due, and over which it is then reduced


class Server:
    """``python -m async_wrappers serve``, in a process of its own."""

    def __init__(self, factory: str = "policy:make_policy", workers: int = WORKERS, folder: Path = HERE) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        serve = [sys.executable, "-m", "async_wrappers", "serve", factory, "--bind", self.address]
        self.command = [*serve, "--workers", str(workers), "--threads"]
        self.process: Any = None
        self.folder = folder  # where Python looks for the factory's module

    def start(self) -> None:
        """Start it, and return when it listens."""
        self.process = subprocess.Popen(self.command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        if not (line := self.process.stdout.readline()):
            sys.exit(self.process.wait())  # it has printed why
        print(line.strip(), flush=True)

    def comes_back(self, after: float, ended: threading.Event) -> None:
        """Wait for its death, and start it again some seconds later, unless the run has ended."""
        code = self.process.wait()
        if ended.is_set():
            return
        how = "was killed" if code == -signal.SIGKILL else f"ended by itself, with exit code {code}"
        print(f"the server {how}", flush=True)
        killed = time.monotonic()
        if not ended.wait(after):
            self.start()
            print(f"it was away for {time.monotonic() - killed:.1f} s", flush=True)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def kill(status: Any, pid: int, frame: int | None) -> None:
    """Kill the server on a frame; called in the arm's process as each frame begins."""
    if status.frame == frame:
        os.kill(pid, signal.SIGKILL)


def play(
    seconds: float,
    kill_at: float | None,
    away: float,
    log: Path,
    factory: str = "policy:make_policy",
    workers: int = WORKERS,
    playout: int = PLAYOUT,
    fps: int = FPS,
    hold: int = HOLD,
    ramp: int = RAMP,
    chunk: int | None = None,
) -> Any:
    """Play, and return the report; with `chunk`, one worker of a policy whose actions are so many positions."""
    folder = HERE if chunk is None else Path.cwd()
    server, ended = Server(factory, workers, folder), threading.Event()
    server.start()
    back = threading.Thread(target=server.comes_back, args=(away, ended))
    back.start()
    try:
        if chunk is not None:  # after a chunk's end the last position is held
            how: dict[str, Any] = {"stagger": "none", "default_action": Chunk(chunk), "limits": Limits(rate=RATE)}
        else:
            how = {"playout": playout, "default_action": RampDown(ramp, hold=hold)}
            # What the server's half of the policy answers, and the half that is here; see policy.py.
            how |= {"features": Arm.observation_space, "make_release": make_policy}
        machine = partial(Arm, log, positions=chunk is not None)
        runner = AsyncRunner(machine, server.address, workers, fps, **how, calibration_time=1.0, seed=1)
        on_frame = partial(kill, pid=server.process.pid, frame=None if kill_at is None else round(kill_at * fps))
        return runner.run(seconds=seconds, on_frame=on_frame)
    finally:
        ended.set()
        if back.is_alive() and server.process.poll() is None:
            server.process.kill()  # nobody has killed it, or it is not up again yet
        back.join()
        if server.process.poll() is None:
            server.end()


def draw_ages(report: Any, log: Path, kill_at: float | None, path: Path, fps: int = FPS) -> None:
    """Draw both ages and the arm's speeds over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times, rows = report.ages().times, np.load(log)
    figure, (above, middle, below) = plt.subplots(3, 1, figsize=(9, 7), sharex=True, layout="constrained")
    report.draw_ages(above, middle)
    when = rows["time"] - rows["time"][0] + times[1]  # the first row is read as frame 1 begins
    below.plot(when, rows["speeds"], label=("shoulder", "elbow"))
    below.set(xlabel="seconds", ylabel="radians per second", title="Speeds of the joints")
    below.legend(loc="upper right")
    below.grid(alpha=0.3)
    if kill_at is not None and round(kill_at * fps) < len(times):
        for axes in (above, middle, below):
            axes.axvline(times[round(kill_at * fps)], color="tab:red", linestyle="--")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def too_slow(frames: dict[str, int], fps: int) -> str | None:
    """Return a sentence if more than a fiftieth of the frames began late or were skipped."""
    late, skipped = frames["missed_deadlines"], frames["skipped"]
    if late + skipped <= 0.02 * (frames["total"] + skipped):
        return None
    slower = next((each for each in range(fps // 2, 0, -1) if HZ % each == 0), 1)
    return (
        f"this machine is too slow or too busy for {fps} frames a second: {late} of {frames['total']} began late and "
        f"{skipped} were skipped; end other programs, or take --fps {slower}"
    )


def draw_arm(report: Any, log: Path, path: Path, oldest: int, fps: int = FPS, size: int = 220) -> None:
    """Draw the arm ten times a second; the border is red where its action is older than `oldest` frames."""
    import mujoco
    from PIL import Image, ImageOps

    model = mujoco.MjModel.from_xml_string(MODEL)
    data, renderer = mujoco.MjData(model), mujoco.Renderer(model, size, size)
    rows, behind = np.load(log), report.ages().behind
    pictures, every = [], max(1, fps // 10)
    for k in range(0, min(len(behind), len(rows["angles"])), every):
        data.qpos[:], data.mocap_pos[0, :2] = rows["angles"][k], rows["target"][k]
        mujoco.mj_forward(model, data)
        renderer.update_scene(data, camera="above")
        is_alone = not behind[k] * fps < oldest + 0.5
        picture = ImageOps.expand(Image.fromarray(renderer.render()), 6, "#d62728" if is_alone else "#dddddd")
        pictures.append(picture.quantize(32, dither=Image.Dither.NONE))
    renderer.close()
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=1000 * every // fps, loop=0)


def main(arguments: list[str] | None = None) -> Any:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=12.0, help="of real time (12)")
    parser.add_argument("--kill-at", type=float, default=4.0, help="seconds until the server is killed (4)")
    parser.add_argument("--no-kill", dest="kill_at", action="store_const", const=None, help="let the server live")
    parser.add_argument("--away", type=float, default=2.0, help="seconds until it is started again (2)")
    parser.add_argument("--latency-ms", type=float, default=LATENCY, help=f"of one inference ({LATENCY:g})")
    parser.add_argument("--cv", type=float, default=CV, help=f"its coefficient of variation, log-normal ({CV:g})")
    parser.add_argument("--fps", type=int, default=FPS, help=f"frames per second, a divisor of {HZ} ({FPS})")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"inferences at a time ({WORKERS})")
    parser.add_argument("--playout", type=int, default=PLAYOUT, help=f"frames until an action is due ({PLAYOUT})")
    parser.add_argument("--hold", type=int, default=HOLD, help=f"frames to go on as before without action ({HOLD})")
    parser.add_argument("--ramp", type=int, default=RAMP, help=f"frames from there to rest ({RAMP})")
    policy = "a policy of your own, which gives chunks of positions; the module is found from the working directory"
    parser.add_argument("--policy", metavar="MODULE:FUNCTION", help=policy)
    parser.add_argument("--chunk", type=int, default=CHUNK, help=f"with --policy: positions of a chunk ({CHUNK})")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of both pictures (here)")
    options = parser.parse_args(arguments)
    for module in ("matplotlib", "PIL"):
        if find_spec(module) is None:
            parser.error(f"{module} draws the pictures: python -m pip install -e '.[mujoco,plot]'")
    if not 0 < options.seconds < 3600 or not options.away >= 0:
        parser.error(f"--seconds must be from 0 to 3600 and --away >= 0, got {options.seconds:g} and {options.away:g}")
    if not 0 <= options.latency_ms < 10_000 or options.workers < 1 or options.playout < 1:
        parser.error(
            f"--latency-ms must be from 0 to 10,000, --workers and --playout >= 1, got {options.latency_ms:g}, "
            f"{options.workers} and {options.playout}"
        )
    if options.fps < 1 or HZ % options.fps:
        parser.error(f"--fps must be a divisor of {HZ}, steps of the simulation per second, got {options.fps}")
    if not 0 <= options.cv <= 3:
        parser.error(f"--cv must be from 0 to 3, standard deviation over mean, got {options.cv:g}: try --cv 0.3")
    if options.hold < 0 or options.ramp < 1:
        parser.error(f"--hold must be >= 0 and --ramp >= 1 frame, got {options.hold} and {options.ramp}")
    if options.chunk < 1:
        parser.error(f"--chunk must be >= 1 frame, got {options.chunk}")
    if options.policy is not None:
        for name in ("latency_ms", "cv", "workers", "playout", "hold", "ramp"):
            if (given := getattr(options, name)) != parser.get_default(name):
                flag = name.replace("_", "-")
                parser.error(f"--{flag} must be left out with --policy, whose one worker gives chunks, got {given:g}")
    os.environ["ARM_LATENCY_MS"] = str(options.latency_ms)  # for the policy in the server's process
    os.environ["ARM_CV"] = str(options.cv)
    if options.policy is None and options.playout != (trained := make_policy().delay):
        print(
            f"warning: the policy was trained for a delay of {trained} frames and plays under {options.playout}: train "
            f"it with --gin_bindings 'DELAY = {options.playout}'"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "arm.npz")
        chosen = {name: getattr(options, name) for name in ("workers", "playout", "fps", "hold", "ramp")}
        oldest = 2 * options.playout
        if options.policy is not None:
            chosen = {"factory": options.policy, "workers": 1, "fps": options.fps, "chunk": options.chunk}
            oldest = options.chunk - 1
        report = play(options.seconds, options.kill_at, options.away, log, **chosen)
        print(report)
        if (sentence := too_slow(report.frames, options.fps)) is not None:
            print(sentence)
        measured = options.output.resolve() / "arm.json"
        report.latencies().to_json(measured)
        print(f"latencies and sensors: {measured}")
        picture, film = (options.output.resolve() / name for name in ("arm_ages.png", "arm.gif"))
        draw_ages(report, log, options.kill_at, picture, options.fps)
        print(f"ages and speeds: {picture}")
        try:
            draw_arm(report, log, film, oldest, options.fps)
            print(f"the arm: {film}")
        except Exception as error:  # MuJoCo's own kinds: no EGL here
            print(f"no moving picture, as nothing can be rendered here ({error}): try MUJOCO_GL=osmesa")
    return report


if __name__ == "__main__":
    main()
