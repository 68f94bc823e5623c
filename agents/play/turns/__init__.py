"""An agent and one environment take turns."""
