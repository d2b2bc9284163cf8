"""The heart is checked in float64, and with strict promotion so that float32 stays float32.

Its programs are many and small: most of LLVM's passes take longer than they save. Fusion is as ever.
"""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def float64():
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield
    jax.config.update("jax_disable_most_optimizations", False)
