"""The simulations of arXiv 2412.14355: a file for every delay of its table, asynchronous and sequential."""
