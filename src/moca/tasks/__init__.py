"""Small tasks whose best return is known exactly."""
