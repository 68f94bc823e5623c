"""Delay in arrays of any library: thousands of environments on one device, each with a delay of its own."""
