"""Runs on disk: their directory, their display, their pictures and films."""

LAST, BEST = "last", "best"  # which of its policies a run answers with
OVER = ("finished", "diverged")  # states in which nothing is left to do
STATES = ("running", "interrupted", "stopped", "failed", "unknown", *OVER)  # stopped: by a callback
