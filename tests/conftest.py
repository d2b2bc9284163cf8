"""Programs that several tests compile alike are compiled once."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def compile_cache(request):
    shared = request.config.cache.mkdir("compiled")
    jax.config.update("jax_compilation_cache_dir", str(shared))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
