"""What the loop steps: environments, machines with a clock of their own, stacked frames."""
