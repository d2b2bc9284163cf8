# ruff: noqa: E501
"""Breaks each formula of `moca.moments` and each rule of `moca.studies.claims`, one at a time; which tests notice?

    python tests/mutants.py [moments] [claims]

Run by `make mutants`. A mutant that no test kills is a hole in the suite, and the exit code says so.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOMENTS = [
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
CLAIMS = [
    ("rules.py", "if p <= LEVEL and abs(difference) >= delta:", "if p <= LEVEL:"),
    ("rules.py", "return HOLDS if difference * sign > 0 else REFUTED", "return HOLDS if difference > 0 else REFUTED"),
    ("rules.py", "return EQUAL if p_equal <= LEVEL else UNDECIDED", "return EQUAL if p > LEVEL else UNDECIDED"),
    ("rules.py", "np.maximum.accumulate(_factors(order.size) * p[order])", "p[order]"),
    ("rules.py", "np.maximum.accumulate(_factors(order.size) * p[order])", "_factors(order.size) * p[order]"),
    ("rules.py", "np.maximum.accumulate(_factors(order.size) * p[order])", "order.size * p[order]"),
    ("rules.py", "equal = max(tails.greater", "equal = min(tails.greater"),
    ("rules.py", "for s in (0, 1, -1)])", "for s in (0, -1, 1)])"),
    ("rules.py", "(1 + counts) / (1 + total)", "counts / total"),
    ("rules.py", "Tested(float(tails.both[3 * place])", "Tested(float(tails.greater[3 * place])"),
    ("rules.py", "    spread += (other_squares - others * others / rest) / ((rest - 1) * rest)\n", ""),
    ("rules.py", "gap / np.sqrt(np.maximum(spread, TIE**2, out=spread), out=spread)", "gap"),
    ("rules.py", "(drawn >= own - slack)", "(drawn > own + slack)"),
    ("rules.py", "if any(verdict in (REFUTED, EQUAL) for", "if any(verdict in (REFUTED,) for"),
    ("rules.py", "return ABSENT if ABSENT in verdicts else UNDECIDED", "return UNDECIDED"),
    ("rules.py", "return {EQUAL: HOLDS, HOLDS: REFUTED, REFUTED: REFUTED}", "return {EQUAL: HOLDS, REFUTED: REFUTED}"),
    ("rules.py", "return HOLDS if low < mean < high else REFUTED", "return HOLDS"),
    ("rules.py", "float(2 * stats.t.sf(", "float(stats.t.sf("),
    ("rules.py", "for draws in MORE_DRAWS:", "for draws in ():"),
    ("scores.py", "bool(0.1 <= self.solved(agent, noise).mean() <= 0.9)", "bool(0 < self.solved(agent, noise).mean() < 1)"),
    ("scores.py", '"above the bar")).low > 0', '"above the bar")).value > 0'),
    ("scores.py", 'return self.of(agent, noise, "peak") - self.bar', 'return self.of(agent, noise, "final") - self.bar'),
    ("scores.py", "self.bar = nothing[task] + LEARNED * (MOST - nothing[task])", "self.bar = nothing[task]"),
    ("scores.py", 'np.where(curves.diverged, 0, curves.values("return_mean")[', 'np.where(False, 0, curves.values("return_mean")['),
    ("scores.py", "np.where(curves.diverged, MOST,", "np.where(curves.diverged, 0,"),
    ("scores.py", "np.where(curves.diverged, np.inf, steps_to", "np.where(False, np.inf, steps_to"),
    ("scores.py", "for each in cells]).groupby(level=0).mean()", "for each in cells]).groupby(level=0).first()"),
    ("scores.py", "(final - final.median()).abs()", "(final - final.median())"),
    ("scores.py", "REACHED * (float(", "(float("),
    ("judging.py", "paired = scores.task == PENDULUM", "paired = True"),
    ("judging.py", "paired = scores.task == PENDULUM", "paired = False"),
    ("judging.py", "return scores.task == PENDULUM and final and any(", "return final and any("),
    ("judging.py", "return scores.task == PENDULUM and final and any(", "return scores.task == PENDULUM and any("),
    ("judging.py", "return scores.task == PENDULUM and final and any(", "return False and any("),
    ("judging.py", "if not scores.learned(agent, noise):", "if False:"),
    ("judging.py", "if max(shares) < 0.5:", "if False:"),
    ("judging.py", "return DELTA_STEPS * scores.all_steps", "return 0 * scores.all_steps"),
    ("judging.py", "if claim.constant_rates and _rates_fall", "if False and _rates_fall"),
    ("judging.py", "DELTA = {CARTPOLE: 20.0, PENDULUM: 40.0}", "DELTA = {CARTPOLE: 20.0, PENDULUM: 20.0}"),
    ("judging.py", "corrected = rules.holm(np.concatenate", "corrected = (np.concatenate"),
    ("paper.py", "(side.agent, side.before or side.noise)", "(side.agent, side.noise)"),
    ("paper.py", 'learned=(("bnaf", noise),)', "learned=None"),
]  # fmt: skip
# where the mutants live, what they are, and what should notice
SUITES = {
    "moments": ("moments", MOMENTS, ["tests/moments", "-n", "2"]),
    "claims": ("studies/claims", CLAIMS, [f"tests/studies/test_claim{end}.py" for end in ("_rules", "_scores", "s")]),
}


def tests_on(source: str, tests: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *tests, "-x", "-q"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}, capture_output=True, text=True,
    )  # fmt: skip


def surviving(folder: str, mutants: list[tuple[str, str, str]], tests: list[str]) -> list[str]:
    """The mutants that survive."""
    if tests_on(str(ROOT / "src"), tests).returncode:
        raise SystemExit("the tests fail before anything is broken: nothing can be learned from them")
    survivors = []
    for number, (file, old, new) in enumerate(mutants, 1):
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(ROOT / "src", copy, dirs_exist_ok=True)
            path = next(Path(copy).rglob(f"{folder}/{file}"))
            source = path.read_text()
            if source.count(old) != 1:
                raise SystemExit(f"mutant {number}: {old!r} stands {source.count(old)} times in {file}")
            path.write_text(source.replace(old, new))
            run = tests_on(copy, tests)
        killer = next((line.split("::")[-1] for line in run.stdout.splitlines() if line.startswith("FAILED")), "")
        print(
            f"{number:2d}/{len(mutants)} {'killed by ' + killer if run.returncode else 'SURVIVED'}: {old} → {new}",
            flush=True,
        )
        if not run.returncode:
            survivors.append(old)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return survivors


def main(names: list[str]) -> int:
    return sum(len(surviving(*SUITES[name])) for name in names or SUITES) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
