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
    ("closed_forms/rbf.py", "widened = 1 + p.variance * f.precision", "widened = 1 + 2 * p.variance * f.precision"),
    ("closed_forms/rbf.py", "plus=jnp.log(widened))", "plus=0.0)"),
    ("closed_forms/rbf.py", "f.precision / widened, plus", "f.precision, plus"),
    ("closed_forms/rbf.py", "precision / widened * (mean - centers) ** 2", "precision * (mean - centers) ** 2"),
    ("closed_forms/rbf.py", "total + jnp.log(widened)", "total"),
    ("closed_forms/rbf.py", "return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))", "return jnp.sum(jnp.log(jnp.diagonal(factor)))"),
    ("closed_forms/rbf.py", "solve_triangular(factor, root.T, lower=True)", "solve_triangular(factor, root, lower=True)"),
    ("closed_forms/rbf.py", "dot(root.T, dot(p.covariance, root))", "dot(root, dot(p.covariance, root.T))"),
    ("closed_forms/ridge.py", "erf(mean / jnp.sqrt(1 + 2 * variance))", "erf(mean / jnp.sqrt(1 + variance))"),
    ("closed_forms/ridge.py", "damping * jnp.cos(f.arguments(p.mean))", "jnp.cos(f.arguments(p.mean))"),
    ("closed_forms/polynomial.py", "p.scale_moment(1) * p.contract(f.A) / 2", "p.contract(f.A) / 2"),
    ("closed_forms/polynomial.py", "p.contract(horner(tensors[2:], p.mean)) / 2", "p.contract(tensors[2]) / 2"),
    ("closed_forms/polynomial.py", "p.scale_moment(2) * p.contract(p.contract(tensors[4])) / 8", "p.contract(p.contract(tensors[4])) / 8"),
    ("closed_forms/polynomial.py", "value = f(p.mean)\n    tensors = f.symmetric()", "value = f(p.mean)\n    tensors = f.tensors"),
    ("closed_forms/polynomial.py", "p.require_moment(len(f.tensors) - 1)", "pass"),
    ("closed_forms/rbf.py", "(conditioned - expect(p))", "conditioned"),
    ("closed_forms/pairs.py", "jax.lax.stop_gradient(jnp.maximum(variance, 0) - variance)", "0.0 * variance"),
    ("closed_forms/points.py", "return jax.vmap(f)(p.points).mean(axis=0)", "return jax.vmap(f)(p.points).sum(axis=0)"),
    ("closed_forms/rbf.py", "@jax.checkpoint", ""),
    ("distributions.py", "return jnp.exp(-q / 2)", "return jnp.exp(-q)"),
    ("distributions.py", "return 1 / (1 + q / 2)", "return jnp.exp(-q / 2)"),
    ("distributions.py", "return float(factorial(order))", "return 1.0"),
    ("distributions.py", "moment *= self.df / (self.df - 2 * i)", "moment *= self.df / (self.df - 2)"),
    ("distributions.py", "(2 * (n - k) / ((k + 1) * (2 * n - k)))", "(2 * (n - k) / ((k + 1) * (2 * n + k)))"),
    ("distributions.py", "/ (2 * (df - 2))", "/ (df - 2)"),
    ("distributions.py", "int(self.df), self.df * q", "int(self.df), q"),
    ("distributions.py", "gain = self.variance * precision * shrink", "gain = self.variance * precision"),
    ("distributions.py", "covariance = jnp.linalg.solve(system, self.covariance)", "covariance = self.covariance"),
    ("distributions.py", "jnp.sqrt(jnp.maximum(u, jnp.finfo(u.dtype).tiny))", "jnp.sqrt(u)"),
    ("distributions.py", "return jax.random.exponential(key, (count,), self.mean.dtype)", "return jnp.ones(count, self.mean.dtype)"),
    ("distributions.py", "self.df / (2 * jax.random.gamma", "self.df / (jax.random.gamma"),
    ("functions/rbf.py", "origin = centers.mean(axis=0)", "origin = 0 * centers.mean(axis=0)"),
    ("functions/rbf.py", "-2 * precision * x, precision]", "-precision * x, precision]"),
    ("functions/rbf.py", "precision, precision * c, precision * c * c", "precision, precision * c, c * c"),
    ("functions/polynomial.py", "dot(value, x) / degree", "dot(value, x)"),
    ("functions/polynomial.py", "factorial(len(index)) * weight", "weight"),
    ("_checks.py", "jnp.asarray(x, like.dtype)", "jnp.asarray(x)"),
    ("mixtures.py", "aleatoric + epistemic)", "aleatoric)"),
    ("mixtures.py", "delta = components.mean - mean[..., None, :]", "delta = components.mean"),
    ("composite.py", "weighted = p.weights.reshape(-1, *(1,) * (one.ndim - 1)) * one", "weighted = 0 * one"),
    ("dispatch.py", "if p.batch_shape:", "if False:"),
    ("_numerics.py", 'precision="highest"', "precision=None"),
    ("_checks.py", "if (lowest < -slack).any():", "if False:"),
    ("_checks.py", "if (gap > slack).any():", "if False:"),
    ("closed_forms/ridge.py", "v * normal_density(h) / deviation", "v * normal_density(h)"),
    ("closed_forms/ridge.py", "excess = bivariate_excess(h, k, rho)", "excess = bivariate_excess(h, k, rho / 2)"),
    ("closed_forms/ridge.py", "c * share_a * by_a", "c * by_a"),
    ("closed_forms/ridge.py", "m_b * excess + c * by_a + v_b * over_b", "m_b * excess + v_b * over_b"),
    ("closed_forms/ridge.py", "m_a * excess + c * by_b + v_a * over_a", "m_a * excess + c * by_b"),
    ("closed_forms/ridge.py", "+ share_a * share_b) * density", ") * density"),
    ("closed_forms/ridge.py", "both = excess + ndtr(h) * ndtr(k)", "both = excess"),
    ("closed_forms/ridge.py", "_exp_times_expm1(exponent, -c)", "_exp_times_expm1(exponent, c)"),
    ("closed_forms/ridge.py", "-jnp.exp(a + up) * jnp.expm1(-up)", "-jnp.exp(a) * jnp.expm1(-up)"),
    ("closed_forms/ridge.py", "2 * slope * jnp.sin", "slope * jnp.sin"),
    ("closed_forms/ridge.py", "(plus + minus) / 2 - apart", "(plus + minus) / 2"),
    ("closed_forms/polynomial.py", "_inner(p, one, two, k) / factorial(k)", "_inner(p, one, two, k)"),
    ("closed_forms/polynomial.py", "moment -= _scale_moment(p, i) * _scale_moment(p, j)", "moment -= 1.0"),
    ("closed_forms/polynomial.py", "tensor / (2**j * factorial(j))", "tensor / 2**j"),
    ("closed_forms/polynomial.py", "joined * slope(g.arguments(p.mean)) / factorial(k)", "joined * slope(g.arguments(p.mean))"),
    ("closed_forms/polynomial.py", "p.require_moment(f.degree + g.degree)", "pass"),
    ("closed_forms/independent.py", "jnp.exp(-apart / 2) * p.bump", "p.bump"),
    ("closed_forms/independent.py", "dot(_repeated(horner(tensors[3:], mean), 3), third) / 6", "0.0"),
    ("closed_forms/independent.py", "fourth - 3 * second**2", "fourth"),
    ("closed_forms/independent.py", "slopes * step * jnp.exp(-step)", "0.0"),
    ("closed_forms/independent.py", "comb(k, i) * jnp", "jnp"),
    ("_special.py", "steep = rho > _STEEP", "steep = rho > 2"),
    ("_special.py", "c * d * square**2 / 5", "0.0"),
    ("_special.py", "near = jnp.where(rho > 0, (h - k) + (1 - rho) * k, (h + k) - (1 + rho) * k)", "near = h - k"),
    ("_special.py", "moments[k] * whole - (-1) ** k * half", "moments[k] * whole - half"),
    ("_special.py", "rate**2 * variance / 2 - rate * away", "-rate * away"),
    ("supports.py", "w**4 * (z**4 - 6 * z**2 + 3) / 1920", "0.0"),
    ("supports.py", "whole + inside - log_normal_mass(low, high)", "whole + inside"),
    ("supports.py", "+ ndtr(-high) * at_high", ""),
    ("supports.py", "(k - 1) * raw[k - 2]", "raw[k - 2]"),
    ("supports.py", "masses[1] * within + atoms", "masses[1] * within"),
    ("supports.py", "width**4 / 80", "width**4 / 90"),
    ("composite.py", "return slope * p.variance", "return slope"),
    ("composite.py", "dot(slope, p.covariance)", "slope"),
    ("gp.py", "jnp.diag(f.signal - explained)", "jnp.diag(f.signal)"),
    ("gp.py", "bases[:, :, None] * bases[:, None, :]", "0.0"),
    ("gp.py", "-fit - size - len", "-fit + size - len"),
    ("propagation.py", "[-np.pi / 2, 0.0]", "[0.0, -np.pi / 2]"),
    ("networks.py", "cross = dot(mean_slope(q, layer), cross)\n        mean, spread", "mean, spread"),
    ("networks.py", "dot(layer.weights**2, each)", "dot(layer.weights, each)"),
    ("numerical.py", "weights = np.r_[1 - d / square", "weights = np.r_[1 / square"),
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
            path = Path(folder) / "moca" / "moments" / file
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
