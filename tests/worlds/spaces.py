"""Any Gymnasium space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
BOXES = st.builds(
    lambda dtype, shape: spaces.Box(0, 1 if dtype == "?" else 100, shape, np.dtype(dtype).type),
    st.sampled_from(["?", "u1", "i2", "i8", "f2", "f4", "f8"]),
    SHAPES,
)
LEAVES = (
    BOXES
    | st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5))
    | hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=3), elements=st.integers(1, 9)).map(
        spaces.MultiDiscrete
    )
    | hnp.array_shapes(max_dims=2, max_side=4).map(spaces.MultiBinary)
)
SPACES: st.SearchStrategy[gym.Space[Any]] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(spaces.Dict)
        | st.dictionaries(st.integers(-2, 2), inner, max_size=3).map(spaces.Dict)
    ),
    max_leaves=6,
)
