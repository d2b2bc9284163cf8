"""Runs on disk: their directory, their display, their pictures and films."""
