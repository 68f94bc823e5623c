"""Reincarnation: students that learn from a trained teacher (Agarwal et al., "Reincarnating RL", NeurIPS 2022)."""
