"""The environment's loop, the clocks, the workers' inferences and actions that wait, and what keeps a machine safe."""
