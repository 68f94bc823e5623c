"""Acting: from rows of observations to rows of actions, and what an action may depend on."""
