"""Workers and policies on a Ray cluster."""
