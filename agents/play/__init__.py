"""Who steps the world: an agent that takes turns with one environment, many environments at once, or hosts."""
