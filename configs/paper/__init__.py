"""The simulations of arXiv 2412.14355; `agents.experiment.paper_simulations` has the names of its table."""
