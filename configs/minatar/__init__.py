"""MinAtar: DQN with its authors' settings, Rainbow, and V-trace without delay, with memory and with chunks."""
