"""The paper's evidence: its figures, its grids of runs, its claims."""
