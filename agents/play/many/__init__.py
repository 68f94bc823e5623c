"""One agent acts for the rows of many environments, in one forward pass for all that wait."""
