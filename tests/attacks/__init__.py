"""Attacks: files, observations and folders as nobody would make them by accident. What is promised must hold."""
