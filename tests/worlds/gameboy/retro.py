"""gym-retro's Game Boy core as an oracle, on the cartridges of these tests.

`record` plays a cartridge in stable-retro: 150 frames, a save state, then 300 frames with buttons, each written down.
The recordings beside this file were made by

    pip install stable-retro==1.0.1 && python -m tests.worlds.gameboy.retro

so that the converter is held against the real emulator's states and frames where stable-retro is not installed, too.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.envs.gameboy.gambatte import parse
from tests.worlds.gameboy.cartridge import DIV, END, LOOPS, add_score, cartridge, store

RECORDINGS = Path(__file__).parent / "gym_retro"
BEFORE, FRAMES = 150, 300
# Video RAM, work RAM (less a byte that PyBoy cannot name in a bank), sprites, high RAM without the stack: where PyBoy's
# memory is seen, the interrupt of the vertical blank has already pushed its return address.
MEMORY = {0x8000: 0x2000, 0xC000: 0x1000, 0xD000: 0x0FFF, 0xFE00: 0xA0, 0xFF80: 0x70}

# LYC, WY, WX, and the palettes of the sprites.
LYC = b"".join(
    bytes((0x3E, value, 0xE0, register))
    for register, value in {0x45: 0x40, 0x4A: 0x50, 0x4B: 0x57, 0x48: 0xD2, 0x49: 0x1B}.items()
)
_WINDOW = bytes((0xF0, 0x40, 0xEE, 0x20, 0xE0, 0x40))  # toggles the window
_SPRITES = bytes((0x3E, 0x50, 0xEA, 0x00, 0xFE, 0xFA, 0x00, 0xC0, 0xEA, 0x01, 0xFE, 0x3E, 0x01, 0xEA, 0x02, 0xFE))
_SPRITES_ON = bytes((0xF0, 0x40, 0xF6, 0x02, 0xE0, 0x40))
_SOUND = bytes((0x3E, 0xF3, 0xE0, 0x12, 0x3E, 0x87, 0xE0, 0x14))
_LINE = bytes((0x3E, 0x40, 0xE0, 0x41))  # an interrupt at the line of LYC
_LINE_ON = bytes((0x3E, 0x07, 0xE0, 0xFF))
# Copies 16 bytes of the ROM to the video RAM in each of four horizontal blanks.
_COPY = bytes(
    (0x3E, 0x04, 0xE0, 0x51, 0xAF, 0xE0, 0x52, 0x3E, 0x10, 0xE0, 0x53, 0xAF, 0xE0, 0x54, 0x3E, 0x83, 0xE0, 0x55)
)
_MORE = _SPRITES + _SPRITES_ON + _SOUND

ON = {"a": add_score(37), "b": store(0xC030, 9), "start": _WINDOW, "select": store(END, 1)}


def cartridges() -> dict[str, bytes]:
    """Return the cartridges that are compared, by name."""
    return {
        "dmg": cartridge("dmg", ON, begin=LYC),
        "dmg_busy": cartridge("dmg", ON, busy=True, each_frame=_MORE, begin=LYC),
        "mbc3": cartridge("mbc3", ON, each_frame=_MORE, begin=LYC),
        "cgb": cartridge("cgb", ON, begin=LYC),
        "cgb_busy": cartridge("cgb", ON, busy=True, each_frame=_MORE, begin=LYC),
        "dmg_line": cartridge("dmg", ON, each_frame=_LINE_ON, begin=LYC + _LINE),
        "cgb_copy": cartridge("cgb", ON, each_frame=_COPY, begin=LYC),
    }


def buttons(seed: int, frames: int) -> list[tuple[str, ...]]:
    """Return what is held on each frame: something else every few frames."""
    generator = np.random.default_rng(seed)
    names = ("a", "b", "select", "start", "up", "down", "left", "right")
    held: list[tuple[str, ...]] = []
    while len(held) < frames:
        choice = generator.random(len(names)) < 0.25
        now = {name for name, chosen in zip(names, choice, strict=True) if chosen}
        if {"left", "right"} <= now or {"up", "down"} <= now:  # impossible on the machine, and filtered by gym-retro
            continue
        held += [tuple(sorted(now))] * int(generator.integers(1, 8))
    return held[:frames]


def held_buttons() -> list[tuple[str, ...]]:
    """Return the buttons of the recordings: none on the first frame, which runs while the converted state is loaded."""
    return [(), *buttons(0, FRAMES)]


def record(rom: bytes, held: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Play `rom` in stable-retro: nothing for a while, a save state, then `held`.

    Returns the state, and of each frame after it the CRC-32 of the screen, and what `checked` says of the memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = _environment(rom, Path(folder))
        env.reset()
        order = [None if button is None else button.lower() for button in env.unwrapped.buttons]

        def frame(now: tuple[str, ...]) -> np.ndarray:
            return env.step(np.array([button in now for button in order], np.int8))[0]

        for _ in range(BEFORE):
            frame(())
        state = gzip.compress(env.unwrapped.em.get_state(), mtime=0)
        screens, seen = [], []
        for now in held:
            screens.append(zlib.crc32(frame(now).tobytes()))
            blocks = env.unwrapped.data.memory.blocks
            seen.append(checked({base: bytes(blocks[base])[:size] for base, size in MEMORY.items()}))
        env.close()
    return {"state": np.frombuffer(state, np.uint8), "screens": np.array(screens), "seen": np.array(seen)}


def checked(blocks: Mapping[int, bytes]) -> tuple[int, int, int]:
    """Return the CRC-32 of the memory less two numbers, and those: the divider as the game read it, its loops."""
    work_ram = bytearray(blocks[0xC000])
    divider, loops = work_ram[DIV - 0xC000], int.from_bytes(work_ram[LOOPS - 0xC000 : LOOPS - 0xC000 + 2], "little")
    for address in (DIV, LOOPS, LOOPS + 1):
        work_ram[address - 0xC000] = 0
    return zlib.crc32(b"".join({**blocks, 0xC000: bytes(work_ram)}.values())), divider, loops


def _environment(rom: bytes, folder: Path) -> Any:
    import stable_retro

    game = folder / "Counter-GameBoy"
    game.mkdir()
    (game / f"rom.{'gbc' if rom[0x143] & 0x80 else 'gb'}").write_bytes(rom)
    (game / "rom.sha").write_text(hashlib.sha1(rom).hexdigest())
    (game / "data.json").write_text(json.dumps({"info": {"frames": {"address": 0xC000, "type": "<u2"}}}))
    (game / "scenario.json").write_text("{}")
    (game / "metadata.json").write_text("{}")
    stable_retro.data.Integrations.add_custom_path(str(folder))
    return stable_retro.make(
        "Counter-GameBoy",
        state=stable_retro.State.NONE,
        inttype=stable_retro.data.Integrations.ALL,
        use_restricted_actions=stable_retro.Actions.ALL,
        render_mode="rgb_array",
    )


def recording(name: str) -> dict[str, np.ndarray]:
    """Return what `record` returned for a cartridge when the recordings were made."""
    with np.load(RECORDINGS / f"{name}.npz") as arrays:
        return dict(arrays)


def altered(name: str, **changed: bytes) -> bytes:
    """Return the state of a recording, unpacked, with the data of some labels changed."""
    chunks = {**parse(recording(name)["state"].tobytes()), **changed}
    data = (label.encode() + b"\0" + len(chunk).to_bytes(3, "big") + chunk for label, chunk in chunks.items())
    return b"\0\1\0\0\0" + b"".join(data)


if __name__ == "__main__":
    RECORDINGS.mkdir(exist_ok=True)
    for _name, _rom in cartridges().items():
        np.savez_compressed(RECORDINGS / f"{_name}.npz", **record(_rom, held_buttons()[:FRAMES]))
