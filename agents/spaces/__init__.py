"""What an observation and an action are: trees of arrays, how a network reads them, distributions of actions."""
