"""The heart is checked in float64, and with strict promotion so that float32 stays float32."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def float64():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield
