"""Environments: two functions each, and the noise on what the agent sees of them."""
