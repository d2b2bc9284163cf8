"""The figures of a study: data of its cells, looks of lines, and one module per kind of figure."""
