"""Hides XLA's log by an environment variable, which must be set before JAX is imported."""

import os
import sys


def hide_log() -> None:
    """Hides XLA's log, such as warnings of slow compilation, unless JAX has been imported.

    Errors are raised as exceptions anyway.
    """
    if "jax" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
