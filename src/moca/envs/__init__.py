"""Environments: two functions each, and the noise on their observations."""
