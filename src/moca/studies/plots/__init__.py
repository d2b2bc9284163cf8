"""What the figures of a study are made of: its cells, how agents look, and one module for each kind of figure."""
