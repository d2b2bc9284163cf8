"""Studies: grids of runs, their results, statistics, figures and reports."""
