"""Analytic planning under uncertainty with moment closure.

Importing `moca` is instant: nothing heavy is loaded until a name is used. The closed forms live in
`moca.moments` and need neither an environment nor an optimiser.
"""

__version__ = "0.2.0.dev0"

_LAZY = {
    **dict.fromkeys(("MoCA", "MoCACE", "MoCAMC", "MoCAMixture", "MoCAPlan", "BNAF", "NAF", "SAC"), "moca.api"),
    "train": "moca.runs.launch",
    "load": "moca.runs.run",
    "Run": "moca.runs.run",
    "resume": "moca.runs.launch",
    **dict.fromkeys(("Callback", "EarlyStopping", "KeepBest", "Training"), "moca.runs.callbacks"),
    "Policy": "moca.deploy",
    "pretrained": "moca.deploy",
    "check_env": "moca.envs.check",
    "load_results": "moca.studies.results",
    **dict.fromkeys(
        (f"register_{kind}" for kind in ("agent", "prediction", "value", "noise", "env")), "moca.extending"
    ),
}

__all__ = tuple(_LAZY)


def __getattr__(name):  # not annotated, so that type checkers take what it returns for Any
    """Imports a name of the Python interface when it is first used."""
    if name in _LAZY:
        from importlib import import_module

        from moca.extras import missing
        from moca.quiet import hide_log

        hide_log()
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if sentence := missing(error):
                raise ModuleNotFoundError(f"moca.{name} needs an extra: {sentence}", name=error.name) from error
            raise
    raise AttributeError(f"module 'moca' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Includes the names that have not been imported yet."""
    return sorted({*globals(), *_LAZY})
