"""Delay in simulators that step thousands of robots on one device, each by the interface that its users expect."""
