"""The environment's loop: where an action waits, the clocks, the workers' seats, and what keeps a machine safe."""
