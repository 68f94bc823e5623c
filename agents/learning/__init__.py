"""From an agent's declarations to a learner that updates its network."""
