"""Programs that several tests compile alike are compiled once; CI draws the same examples every time."""

import ctypes
import gc
import os
import re
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: threads that wait for each other on busy cores

import jax
import pytest
from hypothesis import HealthCheck, settings
from tools.quick_xla import FLAGS

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

gc.set_threshold(20_000, 20, 20)  # tracing makes many objects that live on

ROOT = Path(__file__).parent.parent
MANY_PROGRAMS = 1.2e9  # bytes that a worker holds
GROWTH = 0.3e9  # bytes more than after the last time: a worker may stay above the bound with few programs

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True, scope="session")
def compile_cache(request):
    shared = {
        "jax_compilation_cache_dir": str(request.config.cache.mkdir("compiled")),
        "jax_persistent_cache_min_compile_time_secs": "0.3",
    }
    for name, value in shared.items():
        os.environ[name.upper()] = value  # for the processes that tests start
        jax.config.update(name, float(value) if name.endswith("secs") else value)


def pytest_collection_modifyitems(items):
    """The slowest files first, so that the worker which ends first does not wait long for the other one."""
    slowest = re.findall(r"`(.+\.py)`", (ROOT / "tests" / "slowest.md").read_text())
    rank = {ROOT / name: number for number, name in enumerate(slowest)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


held = {"since": 0.0}  # bytes that the worker held when programs had last been forgotten


def forget_programs():
    jax.clear_caches()
    gc.collect()
    gc.freeze()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc keeps what was freed, half a gigabyte a module
        trim(0)
    held["since"] = resident()


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_module():
    """The programs of a module go with it: thousands of them are gigabytes, which every collection walks through."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def programs_of_many_tests():
    """They go earlier where a module holds so many that its worker would grow beyond two gigabytes."""
    yield
    if resident() > max(MANY_PROGRAMS, held["since"] + GROWTH):
        forget_programs()


def resident():
    """The bytes of memory that this process holds; zero where the system does not say."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if told.is_file() else 0


@pytest.fixture(scope="module")
def programs_made_once():
    """For modules whose runs are many and alike."""
    from tests import sharing

    with sharing.programs_made_once() as made:
        yield made


@pytest.fixture
def registries():
    """What a test adds to the package goes again."""
    from moca import config, looks, presets
    from moca import moments as mm

    tables = (
        config.AGENTS, config.VALUES, config.NOISES, config.ENVS, looks.COLOURS, looks.LOOKS, presets.ENVIRONMENTS,
        mm.CLOSED_FORMS, *presets.PRESETS.values(),
    )  # fmt: skip
    held, quadratic = [dict(each) for each in tables], list(config.QUADRATIC_AGENTS)
    yield
    config.QUADRATIC_AGENTS[:] = quadratic
    for table, entries in zip(tables, held, strict=True):
        table.clear()
        table.update(entries)
