"""Analytic planning under uncertainty with moment closure.

Importing `moca` is instant: nothing heavy is loaded until a name is used. The closed forms live in
`moca.moments` and need neither an environment nor an optimiser.
"""

__version__ = "0.1.0"
