"""Networks: from observations to values."""
