"""The simulations of arXiv 2412.14355; `async_wrappers.agents.config.gin_text` has the names of its table."""
