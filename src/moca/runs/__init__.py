"""Runs on disk: their directory, their display, their pictures and films."""

OVER = ("finished", "diverged")  # states in which nothing is left to do
STATES = ("running", "interrupted", "failed", "unknown", *OVER)
