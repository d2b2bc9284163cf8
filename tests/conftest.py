"""Programs that several tests compile alike are compiled once; CI draws the same examples every time."""

import os

import jax
import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(autouse=True, scope="session")
def compile_cache(request):
    shared = {
        "jax_compilation_cache_dir": str(request.config.cache.mkdir("compiled")),
        "jax_persistent_cache_min_compile_time_secs": "1.0",
    }
    for name, value in shared.items():
        os.environ[name.upper()] = value  # for the processes that tests start
        jax.config.update(name, float(value) if name.endswith("secs") else value)
