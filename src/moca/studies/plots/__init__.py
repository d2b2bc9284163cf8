"""The figures of a study: its cells, the looks of lines, and one module for each kind of figure."""
