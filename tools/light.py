"""Checks an installation without extras: moca.moments works, the rest names its extra.

build/light/bin/python tools/light.py
"""

import subprocess
import sys
import time

started = time.perf_counter()
import jax  # noqa: E402

middle = time.perf_counter()
with_jax = set(sys.modules)
from moca import moments as mm  # noqa: E402

ended = time.perf_counter()
print(f"import jax {middle - started:.2f} s, moca.moments another {ended - middle:.2f} s")
# Times depend on the machine; what is imported does not. Nothing but these comes after jax.
others = {name.split(".")[0] for name in sys.modules.keys() - with_jax} - sys.stdlib_module_names
assert others <= {"equinox", "jax", "jaxtyping", "moca", "numpy", "typing_extensions", "wadler_lindig"}, others
value = mm.RBF(jax.numpy.ones(1), jax.numpy.zeros((1, 2)), jax.numpy.ones(2))
found = float(mm.expectation(mm.DiagonalGaussian(jax.numpy.zeros(2), jax.numpy.ones(2)), value))
assert abs(found - 0.5) < 1e-6, found  # (1 + 1)^(−½) in each dimension
for package in ("optax", "mujoco", "rich", "pandas", "matplotlib", "scipy.stats"):
    assert package not in sys.modules, package
assert subprocess.run([sys.executable, "-m", "moca", "--help"], capture_output=True).returncode == 0
run = subprocess.run([sys.executable, "-m", "moca", "zoo"], capture_output=True, text=True)
names = [line.split()[0] for line in run.stdout.splitlines()]
assert names[1:3] == ["CartpoleBalance", "PendulumSwingup"], run.stdout + run.stderr
assert "pip install ./zoo" in run.stdout.splitlines()[3], run.stdout
run = subprocess.run([sys.executable, "-m", "moca", "train", "--steps", "1000"], capture_output=True, text=True)
assert (run.returncode, "pip install 'moca-rl[train]'" in run.stderr) == (2, True), run.stderr
code = "import moca; moca.MoCA"
run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
assert "moca.MoCA needs an extra: " in run.stderr
assert "pip install 'moca-rl[train]'" in run.stderr, run.stderr
