"""Checkpoints: what is written is what is read, or it is refused."""

import os
import pickle
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.runs import checkpoint
from moca.runs.checkpoint import Checkpoint, DamagedError, Facts, OtherArraysError


def tree():
    return {
        "floats": jnp.arange(12.0).reshape(3, 4),
        "count": jnp.int32(7),
        "flags": jnp.array([True, False]),
        "bytes": jnp.arange(5, dtype=jnp.uint8),
        "none": jnp.zeros((0, 3)),
        "keys": jax.random.split(jax.random.key(3), 2),
    }


@pytest.fixture
def saved(tmp_path):
    for step in (1000, 2000, 3000):
        checkpoint.save(tmp_path, step, Checkpoint(Facts(step // 1000, {}, {}), checkpoint.to_host(tree())), keep=2)
    return tmp_path


def test_what_is_written_is_what_is_read(saved):
    found, complaints = checkpoint.newest(saved)
    assert (found.facts, complaints) == (Facts(3, {}, {}), [])
    restored = checkpoint.from_host(found.arrays, tree())
    assert jax.random.uniform(restored["keys"][1]) == jax.random.uniform(tree()["keys"][1])
    for a, b in zip(checkpoint.to_host(restored), checkpoint.to_host(tree()), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_the_newest_are_kept(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["000000002000.checkpoint", "000000003000.checkpoint"]


def test_a_file_that_is_not_ours_is_left_alone(saved):
    (saved / "before the change.checkpoint").write_bytes(b"mine")
    checkpoint.save(saved, 4000, Checkpoint(Facts(4, {}, {}), checkpoint.to_host(tree())), keep=1)
    assert sorted(path.name for path in saved.iterdir()) == ["000000004000.checkpoint", "before the change.checkpoint"]


def test_the_copy_is_its_own():
    """On a CPU a view would change when the memory is written to again."""
    bump = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1000)
    held = checkpoint.to_host(x)
    for _ in range(3):
        x = bump(x)
    np.testing.assert_array_equal(held[0], 0)


def test_the_same_arrays_are_written_to_again():
    """And a large array that is donated is reused by the next step: nothing keeps a view of it."""
    copy = checkpoint.HostCopy(tree())
    assert copy(tree()) is copy(tree())
    for found, expected in zip(copy(tree()), checkpoint.to_host(tree()), strict=True):
        np.testing.assert_array_equal(found, expected)
    bump = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = bump(jnp.zeros(1_000_000))
    place = x.unsafe_buffer_pointer()
    checkpoint.to_host(x)
    assert bump(x).unsafe_buffer_pointer() == place


def test_the_copy_of_a_spread_array_is_whole():
    """In a process of its own, with two devices."""
    check = (
        "import jax; jax.config.update('jax_num_cpu_devices', 2)\n"
        "import jax.numpy as jnp, numpy as np; from moca.devices import over_devices\n"
        "from moca.runs import checkpoint\n"
        "spread, everywhere = over_devices(4)\n"
        "x = np.arange(12.0, dtype=np.float32).reshape(4, 3)\n"
        "for place in (spread, everywhere):\n"
        "    given = jax.device_put(x, place); assert len(given.addressable_shards) == 2\n"
        "    np.testing.assert_array_equal(checkpoint.to_host(given)[0], x)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def test_every_flipped_byte_and_every_cut_is_found(saved):
    """Anywhere in the file: the format's name, the hash, the header, the arrays."""
    newest = max(saved.glob("*.checkpoint"))
    good = newest.read_bytes()
    random = np.random.default_rng(0)
    for place in [*range(0, 100), *random.integers(0, len(good), 100)]:
        bad = bytearray(good)
        bad[place] ^= 1 << int(random.integers(8))
        newest.write_bytes(bad)
        with pytest.raises(DamagedError, match=newest.name):
            checkpoint.load(newest)
    for length in [0, 1, 17, 18, 50, 90, *random.integers(0, len(good), 14)]:
        newest.write_bytes(good[:length])
        found, complaints = checkpoint.newest(saved)
        assert found.facts.episode == 2
        assert [newest.name in text for text in complaints] == [True]


def test_no_code_is_run(saved, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    path = saved / "000000009000.checkpoint"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DamagedError, match="not a checkpoint of this version"):
        checkpoint.load(path)
    assert not (tmp_path / "exploded").exists()


def test_another_run_s_arrays_are_refused(saved):
    newest = max(saved.glob("*.checkpoint"))
    assert checkpoint.load(newest, [checkpoint.layout(tree())])
    other = [checkpoint.layout(tree() | {"count": jnp.float32(7)})]
    with pytest.raises(OtherArraysError, match=f"{newest.name} does not match this run"):
        checkpoint.load(newest, other)
    with pytest.raises(OtherArraysError):  # it is not passed over, as a damaged one is
        checkpoint.newest(saved, other)
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedError):
        checkpoint.load(newest, other)


def test_what_was_left_half_written_is_removed(saved):
    (saved / "000000004000.checkpoint.writing").write_bytes(b"half")
    assert checkpoint.newest(saved)[0].facts.episode == 3
    assert not list(saved.glob("*.writing"))


# One process imports, and for each folder a child of it saves until it is killed.
SAVES = """
import os, pathlib, sys, numpy as np
from moca.runs import checkpoint
arrays = [np.arange(400_000.0), np.ones((300, 300))]
for line in sys.stdin:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        for step in range(10_000):
            made = checkpoint.Checkpoint(checkpoint.Facts(step, {}, {}), arrays)
            checkpoint.save(pathlib.Path(line.strip()), step, made, keep=2)
            os.write(1, b"%d\\n" % step)  # at once, or a kill could leave half a line
        os._exit(0)
    print("killed by", os.WTERMSIG(os.wait()[1]), flush=True)
"""


@pytest.fixture
def saving():
    command = [sys.executable, "-c", SAVES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_while_saving_leaves_a_valid_one(tmp_path, saving, kills):
    random = np.random.default_rng(kills)
    for number in range(kills):
        folder = tmp_path / str(number)
        print(folder, file=saving.stdin, flush=True)
        child, told = int(saving.stdout.readline()), [saving.stdout.readline()]
        time.sleep(random.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        while not told[-1].startswith("killed"):
            told.append(saving.stdout.readline())
        assert told[-1] == "killed by 9\n"
        told = int(told[-2])
        assert len(list(folder.glob("*.writing"))) <= 1
        found, complaints = checkpoint.newest(folder)
        assert complaints == []
        assert found.facts.episode >= told
        np.testing.assert_array_equal(found.arrays[0], np.arange(400_000.0))
