"""Losses, as pure functions of batches: the papers' equations without networks, replays or agents."""
