"""What belongs to the paper alone: its figures, its grids, its claims, and the cliff beside Figure 1."""
