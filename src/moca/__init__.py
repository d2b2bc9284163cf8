"""Analytic planning under uncertainty with moment closure.

Importing `moca` is instant: nothing heavy is loaded until a name is used. The closed forms live in
`moca.moments` and need neither an environment nor an optimiser.
"""

__version__ = "0.1.0"

_LAZY = {
    "train": "moca.runs.launch",
    "load": "moca.runs.launch",
    "Run": "moca.runs.launch",
    "load_results": "moca.studies.results",
}


def __getattr__(name: str) -> object:
    """The names of the Python interface, imported when first used."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'moca' has no attribute {name!r}")
