# ruff: noqa: E501
"""Breaks each formula of `moca.moments` on purpose, one at a time, and reports which tests noticed.

Run by `make mutants`. A mutant that no test kills is a hole in the suite, and the exit code says so.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MUTANTS = [
    # file, what stands there, what it becomes
    ("closed_forms.py", "widened = 1 + p.variance * f.precision", "widened = 1 + 2 * p.variance * f.precision"),
    ("closed_forms.py", "plus=jnp.log(widened))", "plus=0.0)"),
    ("closed_forms.py", "f.precision / widened, plus", "f.precision, plus"),
    ("closed_forms.py", "precision / widened * (mean - centers) ** 2", "precision * (mean - centers) ** 2"),
    ("closed_forms.py", "total + jnp.log(widened)", "total"),
    ("closed_forms.py", "return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))", "return jnp.sum(jnp.log(jnp.diagonal(factor)))"),
    ("closed_forms.py", "solve_triangular(factor, root.T, lower=True)", "solve_triangular(factor, root, lower=True)"),
    ("closed_forms.py", "dot(root.T, dot(p.covariance, root))", "dot(root, dot(p.covariance, root.T))"),
    ("closed_forms.py", "jnp.sqrt(1 + 2 * p.along", "jnp.sqrt(1 + p.along"),
    ("closed_forms.py", "damping * jnp.cos(f.angles(p.mean))", "jnp.cos(f.angles(p.mean))"),
    ("closed_forms.py", "p.scale_moment(1) * p.contract(f.A) / 2", "p.contract(f.A) / 2"),
    ("closed_forms.py", "p.contract(horner(tensors[2:], p.mean)) / 2", "p.contract(tensors[2]) / 2"),
    ("closed_forms.py", "p.scale_moment(2) * p.contract(p.contract(tensors[4])) / 8", "p.contract(p.contract(tensors[4])) / 8"),
    ("closed_forms.py", "tensors = f.symmetric()", "tensors = f.tensors"),
    ("closed_forms.py", "p.require_moment(len(f.tensors) - 1)", "pass"),
    ("closed_forms.py", "dot(conditioned - bases, f.weights)", "dot(conditioned, f.weights)"),
    ("closed_forms.py", "second * curved / 2", "curved / 2"),
    ("closed_forms.py", "(second - first**2) * p.contract(A) ** 2 / 4", "0.0"),
    ("closed_forms.py", "A = (f.A + f.A.T) / 2", "A = f.A"),
    ("closed_forms.py", "jax.lax.stop_gradient(jnp.maximum(variance, 0) - variance)", "0.0 * variance"),
    ("closed_forms.py", "return jax.vmap(f)(p.points).mean()", "return jax.vmap(f)(p.points).sum()"),
    ("closed_forms.py", "@jax.checkpoint", ""),
    ("distributions.py", "return jnp.exp(-q / 2)", "return jnp.exp(-q)"),
    ("distributions.py", "return 1 / (1 + q / 2)", "return jnp.exp(-q / 2)"),
    ("distributions.py", "{1: 1.0, 2: 2.0}", "{1: 1.0, 2: 1.0}"),
    ("distributions.py", "moment *= self.df / (self.df - 2 * i)", "moment *= self.df / (self.df - 2)"),
    ("distributions.py", "(2 * (n - k) / ((k + 1) * (2 * n - k)))", "(2 * (n - k) / ((k + 1) * (2 * n + k)))"),
    ("distributions.py", "/ (2 * (df - 2))", "/ (df - 2)"),
    ("distributions.py", "int(self.df), self.df * q", "int(self.df), q"),
    ("distributions.py", "gain = self.variance * precision * shrink", "gain = self.variance * precision"),
    ("distributions.py", "covariance = jnp.linalg.solve(system, self.covariance)", "covariance = self.covariance"),
    ("distributions.py", "jnp.sqrt(jnp.maximum(u, jnp.finfo(u.dtype).tiny))", "jnp.sqrt(u)"),
    ("distributions.py", "return jax.random.exponential(key, (count,), self.mean.dtype)", "return jnp.ones(count, self.mean.dtype)"),
    ("distributions.py", "self.df / (2 * jax.random.gamma", "self.df / (jax.random.gamma"),
    ("functions.py", "origin = centers.mean(axis=0)", "origin = 0 * centers.mean(axis=0)"),
    ("functions.py", "-2 * precision * x, precision]", "-precision * x, precision]"),
    ("functions.py", "precision, precision * c, precision * c * c", "precision, precision * c, c * c"),
    ("functions.py", "dot(value, x) / degree", "dot(value, x)"),
    ("functions.py", "factorial(len(index)) * weight", "weight"),
    ("_checks.py", "jnp.asarray(x, like.dtype)", "jnp.asarray(x)"),
    ("mixtures.py", "aleatoric + epistemic)", "aleatoric)"),
    ("mixtures.py", "delta = components.mean - mean[..., None, :]", "delta = components.mean"),
    ("expectation.py", "variances + centred**2", "variances"),
    ("expectation.py", "if p.batch_shape:", "if False:"),
    ("_numerics.py", 'precision="highest"', "precision=None"),
    ("_checks.py", "if (lowest < -slack).any():", "if False:"),
    ("_checks.py", "if (gap > slack).any():", "if False:"),
]  # fmt: skip


def tests_on(source: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "tests/moments", "-x", "-q", "-n", "2"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}, capture_output=True, text=True,
    )  # fmt: skip


def main() -> int:
    if tests_on(str(ROOT / "src")).returncode:
        raise SystemExit("the tests fail before anything is broken: nothing can be learned from them")
    survivors = []
    for number, (file, old, new) in enumerate(MUTANTS, 1):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
            path = next(Path(folder).rglob(f"moments/{file}"))
            source = path.read_text()
            if source.count(old) != 1:
                raise SystemExit(f"mutant {number}: {old!r} stands {source.count(old)} times in {file}")
            path.write_text(source.replace(old, new))
            run = tests_on(folder)
        killer = next((line.split("::")[-1] for line in run.stdout.splitlines() if line.startswith("FAILED")), "")
        print(
            f"{number:2d}/{len(MUTANTS)} {'killed by ' + killer if run.returncode else 'SURVIVED'}: {old} → {new}",
            flush=True,
        )
        if not run.returncode:
            survivors.append(old)
    print(f"{len(MUTANTS) - len(survivors)} of {len(MUTANTS)} mutants killed")
    return len(survivors) > 0


if __name__ == "__main__":
    sys.exit(main())
