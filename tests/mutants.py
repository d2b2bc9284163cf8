# ruff: noqa: E501
"""Breaks formulas of `moca.moments` and planning, rules of run directories and of `moca.paper.claims`, one at a time.

    python tests/mutants.py [moments] [directories] [stateful] [planning] [imagination] [horizons] [outcomes] [claims]

Run by `make mutants`. A mutant that no test kills is a hole in the suite, and the exit code says so. The test that
killed a mutant is noted in killers.json, which is kept in the repository, and comes first the next time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
KILLERS = ROOT / "tests" / "killers.json"  # which test noticed each mutant last time
MOMENTS = [
    # file, what stands there, what it becomes
    ("closed_forms/rbf.py", "factor = 1 + jnp.where(huge, 0, variance) * precision", "factor = 1 + 2 * jnp.where(huge, 0, variance) * precision"),
    ("closed_forms/rbf.py", "plus=log_widened)", "plus=0.0)"),
    ("closed_forms/rbf.py", "jnp.where(huge, 1 / one, precision / factor)", "jnp.where(huge, 1 / one, precision)"),
    ("closed_forms/rbf.py", "jnp.where(huge, jnp.log(one) + jnp.log(precision)", "jnp.where(huge, jnp.log(one)"),
    ("closed_forms/rbf.py", "total + log_widened + precision * gap * gap", "total + precision * gap * gap"),
    ("closed_forms/rbf.py", "gap = cut_off(mean - centers, precision)", "gap = cut_off(mean + centers, precision)"),
    ("linear.py", "return 2 * jnp.sum(jnp.log(jnp.diagonal(both)))", "return jnp.sum(jnp.log(jnp.diagonal(both)))"),
    ("closed_forms/rbf.py", "linear.whiten(inner, root.T)", "linear.whiten(inner, root)"),
    ("linear.py", "jnp.where(jnp.arange(size) > k, row[:size], 0)", "jnp.where(jnp.arange(size) > k + 1, row[:size], 0)"),
    ("linear.py", "jnp.where(none, 0, rest[:, k]", "jnp.where(none, 1, rest[:, k]"),
    ("linear.py", "row = both[k] / both[k, k]", "row = both[k]"),
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
    ("closed_forms/points.py", "jax.vmap(f)(p.points).mean(axis=0)", "jax.vmap(f)(p.points).sum(axis=0)"),
    ("closed_forms/rbf.py", "@jax.checkpoint", ""),
    ("distributions.py", "return jnp.exp(-q / 2)", "return jnp.exp(-q)"),
    ("distributions.py", "return 1 / (1 + q / 2)", "return jnp.exp(-q / 2)"),
    ("distributions.py", "return float(factorial(order))", "return 1.0"),
    ("distributions.py", "moment *= self.df / (self.df - 2 * i)", "moment *= self.df / (self.df - 2)"),
    ("_special.py", "(2 * (n - k) / ((k + 1) * (2 * n - k)))", "(2 * (n - k) / ((k + 1) * (2 * n + k)))"),
    ("_special.py", "/ (2 * (df - 2))", "/ (df - 2)"),
    ("distributions.py", "int(self.df), self.df * q", "int(self.df), q"),
    ("distributions.py", "gain = self.variance * precision * shrink", "gain = self.variance * precision"),
    ("distributions.py", "covariance = jnp.linalg.solve(system, self.covariance)", "covariance = self.covariance"),
    ("_special.py", "jnp.sqrt(jnp.maximum(u, jnp.finfo(u.dtype).tiny))", "jnp.sqrt(u)"),
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
    ("closed_forms/ridge.py", "m_b * excess + c * by_a + v_b * over_b", "m_b * excess + c * by_a"),
    ("closed_forms/ridge.py", "return gate_covariance(g, m_b, v_b, f, m_a, v_a, c)", "return gate_covariance(g, m_b, v_a, f, m_a, v_b, c)"),
    ("closed_forms/ridge.py", "+ share_a * share_b) * density", ") * density"),
    ("closed_forms/ridge.py", "both = excess + ndtr(h) * ndtr(k)", "both = excess"),
    ("closed_forms/ridge.py", "_exp_times_expm1(exponent, -c)", "_exp_times_expm1(exponent, c)"),
    ("closed_forms/ridge.py", "-jnp.exp(a + up) * jnp.expm1(-up)", "-jnp.exp(a) * jnp.expm1(-up)"),
    ("closed_forms/ridge.py", "2 * slope * jnp.sin", "slope * jnp.sin"),
    ("closed_forms/ridge.py", "(plus + minus) / 2 - apart", "(plus + minus) / 2"),
    ("closed_forms/polynomial.py", "_inner(p, one, two, k) / factorial(k)", "_inner(p, one, two, k)"),
    ("closed_forms/polynomial.py", "moment -= p.scale_moment(i) * p.scale_moment(j)", "moment -= 1.0"),
    ("closed_forms/polynomial.py", "tensor / (2**j * factorial(j))", "tensor / 2**j"),
    ("closed_forms/polynomial.py", "joined * slope(g.arguments(p.mean)) / factorial(k)", "joined * slope(g.arguments(p.mean))"),
    ("closed_forms/polynomial.py", "p.require_moment(f.degree + g.degree)", "pass"),
    ("closed_forms/independent.py", "jnp.exp(-apart / 2) * p.bump", "p.bump"),
    ("closed_forms/independent.py", "dot(_repeated(horner(tensors[3:], mean), 3), third) / 6", "0.0"),
    ("closed_forms/independent.py", "fourth - 3 * second**2", "fourth"),
    ("closed_forms/independent.py", "prod(map(factorial,", "max(map(factorial,"),
    ("closed_forms/independent.py", "value *= table[powers[..., j], j]", "value *= table[powers[..., j], 0]"),
    ("closed_forms/independent.py", "f.weigh(slopes / precision +", "f.weigh(slopes +"),
    ("closed_forms/independent.py", "(f.centers - p.mean) * means", "f.centers * means"),
    ("closed_forms/matern.py", "slopes * step * jnp.exp(-step)", "0.0"),
    ("closed_forms/matern.py", "return decay * half_line(", "return half_line("),
    ("closed_forms/matern.py", "+ beyond(low, one - low, two - low)", "+ beyond(low, two - low, one - low)"),
    ("closed_forms/matern.py", "+ _between(p, f, g, one, two)", ""),
    ("closed_forms/matern.py", "f.rates**k * start ** (k - j)", "start ** (k - j)"),
    ("closed_forms/matern.py", "c * comb(k, j) * f", "c * f"),
    ("closed_forms/matern.py", "_beside(g, from_g, -side)", "_beside(g, from_g, side)"),
    ("closed_forms/matern.py", " - p.variance * tilt**2 / 2)", ")"),
    ("closed_forms/matern.py", "3 * p.variance**2", "p.variance**2"),
    ("closed_forms/matern.py", "jnp.minimum(end, reach)", "jnp.minimum(end, reach / 4)"),
    ("closed_forms/matern.py", "jnp.maximum(p.variance, least) - p.variance", "0 * p.variance"),
    ("closed_forms/matern.py", "jnp.minimum(p.upper, high + _FOLDS / rate)", "jnp.minimum(p.upper, high + 5 / rate)"),
    ("closed_forms/matern.py", "jnp.prod(total / (p.upper - p.lower), axis=-1)", "jnp.prod(total, axis=-1)"),
    ("_special.py", "steep = rho > _STEEP", "steep = rho > 2"),
    ("_special.py", "c * d * square**2 / 5", "0.0"),
    ("_special.py", "near = jnp.where(rho > 0, (h - k) + (1 - rho) * k, (h + k) - (1 + rho) * k)", "near = h - k"),
    ("_special.py", "moments[k] * whole - (-1) ** k * half", "moments[k] * whole - half"),
    ("_special.py", "rate**2 * variance / 2 - rate * away", "-rate * away"),
    ("_special.py", "(k - 1) * variance * moments[k - 2]", "variance * moments[k - 2]"),
    ("_special.py", "-more[1:] * tangents[0]", "more[1:] * tangents[0]"),
    ("_special.py", "(ndtr(conditional(h, k, rho)) - ndtr(h))", "(ndtr(conditional(h, k, rho)) - ndtr(k))"),
    ("_special.py", "bivariate_density(h, k, rho) * drho", "0 * drho"),
    ("_special.py", "np.polynomial.Polynomial([1, 0, -5])", "np.polynomial.Polynomial([1, 0, 5])"),
    ("closed_forms/ridge.py", "1 + 2 * jnp.where(steep, 0, variance)", "1 + jnp.where(steep, 0, variance)"),
    ("closed_forms/ridge.py", "_wave_covariance(mean, variance, mean, variance, variance)", "_wave_covariance(mean, variance, mean, variance, 0 * variance)"),
    ("composite.py", "(p.components, f), p.components.mean", "(p.components, f), 0 * p.components.mean"),
    ("networks.py", "SAFETY * (jnp.abs(given - better)", "SAFETY * (0 * jnp.abs(given - better)"),
    ("numerical.py", "p._spread(jnp.asarray(grid, dtype))", "jnp.asarray(grid, dtype)"),
    ("supports.py", "w**4 * (z**4 - 6 * z**2 + 3) / 1920", "0.0"),
    ("supports.py", "whole + inside - log_normal_mass(low, high)", "whole + inside"),
    ("supports.py", "+ ndtr(-high) * at_high", ""),
    ("supports.py", "(k - 1) * central[k - 2]", "central[k - 2]"),
    ("supports.py", "- mean * central[k - 1]", ""),
    ("supports.py", "55 / jnp.maximum(near, 4.0)", "15 / jnp.maximum(near, 4.0)"),
    ("supports.py", "_REACH = 1e6", "_REACH = 37.0"),
    ("supports.py", "jnp.where(empty, _NOTHING, ", "jnp.where(False, _NOTHING, "),
    ("supports.py", "masses[1] * within + atoms", "masses[1] * within"),
    ("supports.py", "half**k / (k + 1)", "half**k / (k + 2)"),
    ("composite.py", "return slope * p.variance", "return slope"),
    ("composite.py", "dot(slope, p.covariance)", "slope"),
    ("gp.py", "jnp.diag(f.signal - explained)", "jnp.diag(f.signal)"),
    ("gp.py", "bases[:, :, None] * bases[:, None, :]", "0.0"),
    ("gp.py", ".at[b, a].set(upper)", ""),
    ("closed_forms/rbf.py", "lambda q: q.mean)", "lambda q: 0 * q.mean)"),
    ("closed_forms/rbf.py", "for k in range(1, len(x))", "for k in range(2, len(x))"),
    ("gp.py", "-fit - size - len", "-fit + size - len"),
    ("gp.py", "covariance(p, RBF(w, f.inputs, scales**-2), g)", "covariance(p, RBF(w, f.inputs, scales**-1), g)"),
    ("gp.py", "weights = f.signal[:, None] * f.solve()[1]", "weights = f.solve()[1]"),
    ("composite.py", "s * t * covariance(p, a, b)", "s * covariance(p, a, b)"),
    ("tables.py", "    (Distribution, object, Sum): made.sum_covariance,\n", ""),
    ("propagation.py", "[-np.pi / 2, 0.0]", "[0.0, -np.pi / 2]"),
    ("networks.py", "cross = dot(mean_slope(q, layer), cross)\n        mean, spread", "mean, spread"),
    ("networks.py", "dot(layer.weights**2, each)", "dot(layer.weights, each)"),
    ("numerical.py", "weights = np.r_[1 - d / square", "weights = np.r_[1 / square"),
]  # fmt: skip
CLAIMS = [
    ("rules.py", "if p <= LEVEL and abs(difference) >= delta:", "if p <= LEVEL:"),
    ("rules.py", "return HOLDS if difference * sign > 0 else REFUTED", "return HOLDS if difference > 0 else REFUTED"),
    ("rules.py", "return EQUAL if p_equal <= LEVEL else UNDECIDED", "return EQUAL if p > LEVEL else UNDECIDED"),
    ("rules.py", "np.maximum.accumulate(factors * p[order])", "p[order]"),
    ("rules.py", "np.maximum.accumulate(factors * p[order])", "factors * p[order]"),
    ("rules.py", "np.maximum.accumulate(factors * p[order])", "order.size * p[order]"),
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
    ("studies/registry.py", "0.1 <= solved[0] / max(1, solved[1]) <= 0.9", "0 < solved[0] / max(1, solved[1]) < 1"),
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
    ("paper/tasks.py", "CARTPOLE: Task(", "CARTPOLE: Task(solved=SOLVED[CARTPOLE], "),
    ("judging.py", "return final and any(", "return any("),
    ("judging.py", "return final and any(", "return False and any("),
    ("judging.py", "if not scores.learned(agent, noise):", "if False:"),
    ("judging.py", "if max(shares) < 0.5:", "if False:"),
    ("judging.py", "return DELTA_STEPS * scores.all_steps", "return 0 * scores.all_steps"),
    ("judging.py", "if claim.constant_rates and _rates_fall", "if False and _rates_fall"),
    ("judging.py", "DELTA = {CARTPOLE: 20.0, PENDULUM: 40.0}", "DELTA = {CARTPOLE: 20.0, PENDULUM: 20.0}"),
    ("judging.py", "corrected = rules.holm(np.concatenate", "corrected = (np.concatenate"),
    ("statements.py", "(side.agent, side.before or side.noise)", "(side.agent, side.noise)"),
    ("statements.py", 'learned=(("bnaf", noise),)', "learned=None"),
]  # fmt: skip
DIRECTORIES = [
    (
        "launch.py",
        "    with directory.locked():\n        directory.begin(plan.config, plan.runs, start.path if start else None, preset)\n",
        "    directory.path.mkdir(parents=True, exist_ok=True)\n    directory.begin(plan.config, plan.runs, start.path if start else None, preset)\n    with directory.locked():\n",
    ),
    ("before.py", "directory.refuse(config, runs)  # before there", "pass  # before there"),
    ("before.py", "directory.refuse_other(config, directory.runs)  # before there", "pass  # before there"),
    ("directory.py", '(self.path / "config.json").unlink(missing_ok=True)', "pass"),
    ("checkpoint.py", "if error.errno in (None, ", "if True or error.errno in (None, "),
    ("received.py", 'if rows and number == len(lines) and not text.endswith("\\n"):', "if False:"),
    ("saving.py", "if not os.path.lexists(path):", "if False:"),
    ("saving.py", 'if identity != directory.meta.get("identity"):', "if False:"),
    ("saving.py", "or path.stem != f", "or False and path.stem != f"),
    ("saving.py", "if lengths.keys() != set(LOGS):", "if False:"),
    ("saving.py", "if other := _other_log(directory, lengths, ends):", "if other := None:"),
    ("saving.py", "row.items() >= own.items()", "True"),
    ("saving.py", "is_valid(row) and ", ""),
    ("received.py", 'len(text.encode()) < length or not text.endswith("\\n")', "False"),
    ("saving.py", "            directory.refuse_lost()\n", ""),
    ("lock.py", "if os.path.samestat(", "if True or os.path.samestat("),
    ("saving.py", "good = plausible(", "good = True or plausible("),
    ("saving.py", "directory.sync()  # first the logs", "pass  # first the logs"),
    ("launch.py", "if request or all_diverged or stopped:", "if request:"),
    ("launch.py", "with request.at_once(leave):", "if True:"),
    ("directory.py", "if told and told != ours:", "if False:"),
    ("lock.py", "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
    ("lock.py", "files.refuse_odd(path)", "pass"),
    ("directory.py", "            self.refuse_lost()\n            try:", "            try:"),
    ("directory.py", "            self.refuse_lost()\n            yield", "            yield"),
    ("directory.py", "                files.refuse_odd(self.path / name)", "                pass"),
    ("directory.py", "files.refuse_odd(self.checkpoints, folder=True)", "pass"),
    ("directory.py", "if not self._is_ours():", "if False:"),
    ("directory.py", "self.cut(before)  # so that both logs", "pass  # so that both logs"),
    ("directory.py", "self._forget()  # another process", "pass  # another process"),
    ("directory.py", "_ = self.status  # raises if", "pass  # raises if"),
    ("directory.py", "                files.refuse_odd(folder, folder=True)", "                pass"),
    ("directory.py", "enumerate(rows, 1) if not is_row(row)", "enumerate(rows, 1) if False"),
    ("files.py", "if os.fstat(handle).st_size > length:", "if True:"),
    ("files.py", 'getattr(os, "O_NOFOLLOW", 0)', "0"),
    ("files.py", "aside.replace(path)", "path.write_bytes(aside.read_bytes()); aside.unlink()"),
    ("files.py", "            os.ftruncate(handle, before)\n            raise", "            raise"),
    ("files.py", "found.st_nlink > 1", "False"),
    ("files.py", "content.ljust(found.st_size - 1)", "content"),
    ("files.py", "if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:", "if True:"),
    ("checkpoint.py", 'if told != digest.hexdigest().encode() + b"\\n":', "if False:"),
    ("checkpoint.py", "if length > min(HEADER, size - before):", "if False:"),
    ("checkpoint.py", "type(value) is int and 0 <= value", "value is not None and 0 <= value"),
    ("checkpoint.py", "if re.fullmatch(r", "if True or re.fullmatch(r"),
    ("checkpoint.py", "len(each[1]) <= DIMENSIONS and ", ""),
    ("checkpoint.py", "max(size, 1) for size", "size for size"),
    ("checkpoint.py", "if told == rest.hexdigest()", "if None == rest.hexdigest()"),
    ("checkpoint.py", "later = sum(each.name > path.name for each in ours)", "later = 0"),
    ("checkpoint.py", "class OtherArraysError(ConfigError):", "class OtherArraysError(DamagedError):"),
    ("checkpoint.py", "if expected is not None and layout not in expected:", "if False:"),
    ("checkpoint.py", "if path.is_symlink() or path.is_dir():", "if False:"),
    ("checkpoint.py", "if magic not in (MAGIC, BEFORE) or len(lead) < 8:", "if len(lead) < 8:"),
    ("directory.py", 'if status.get("state") not in STATES or ', "if "),
    ("directory.py", "if not isinstance(found, dict):", "if False:"),
    ("shapes.py", "if not isinstance(runs, list) or not runs or not all(is_run(run) for run in runs):", "if False:"),
    ("directory.py", 'if steps < (least := self.status["step"] if stopped else self.totals[-1]):', "if False:"),
    ("launch.py", "            directory.extend(steps)\n", "            directory.extend(steps)\n            directory.note_start(0)\n"),
    ("launch.py", "                directory.note_start(step)\n", ""),
    ("launch.py", "    refuse_other_scores(options.callback, run)\n", ""),
    (
        "launch.py",
        "stopped = stops(callback(training))\n                saver.save_if_due()  # with",
        "saver.save_if_due()\n                stopped = stops(callback(training))  # with",
    ),
    (
        "saving.py",
        "trainer.state = starting.begun(directory, trainer.state)  # raises if it cannot\n        directory.cut(dict.fromkeys(LOGS, 0))",
        "directory.cut(dict.fromkeys(LOGS, 0))\n        trainer.state = starting.begun(directory, trainer.state)",
    ),
    ("saving.py", "self._copy(trainer.state) + self._candidates()", "self._copy(trainer.state)"),
    ("saving.py", "(candidates and not _are_candidates(", "(False and not _are_candidates("),
    ("origin.py", 'if isinstance(start, dict) and start.get("sha256"):', "if False:"),
    ("starting.py", "        if told is not None:\n            raise", "        if False:\n            raise"),
    ("starting.py", 'if any(directory.checkpoints.glob("*")) or directory.rows():', "if False:"),
    ("starting.py", 'if not isinstance(told, dict) or not found or found != told.get("sha256"):', "if False:"),
    ("callbacks.py", 'if told and told != {files.digest(run.path / f"{BEST}.npz")}:', "if False:"),
    ("callbacks.py", '(run.path / f"{BEST}.json").unlink(missing_ok=True)', "pass"),
    ("callbacks.py", "return False if ended else None", "return None"),
    ("callbacks.py", "if step <= self._warmup or not", "if not"),
    ("callbacks.py", 'row["step"] > since', 'row["step"] > 0'),
    ("callbacks.py", "elif scores and max(", "elif scores and 0 * max("),
    ("interrupts.py", "finally:  # exit whatever", "except ZeroDivisionError:  # exit whatever"),
    ("interrupts.py", "if asked and number[0] == signal.SIGINT:", "if False:"),
]  # fmt: skip
# Of these, the rules without which two commands, an accident or a forged file once broke a run: random sequences alone
# must notice each of them.
FIXES = (
    "    with directory.locked():",
    "if identity != ",
    "if lengths.keys() != ",
    "if other := ",
    "directory.sync()",
    "if told and told != ours:",
    "fcntl.flock(",
    "files.refuse_odd(path)",
    "if os.path.samestat(",
    "                files.refuse_odd(self.path / name)",
    "files.refuse_odd(self.checkpoints, folder=True)",
    "if told != digest",
    "if os.fstat(handle).st_size > length:",
    "or path.stem != f",
    "row.items() >= own.items()",
    "found.st_nlink > 1",
    "                files.refuse_odd(folder, folder=True)",
    "if path.is_symlink() or path.is_dir():",
    "if magic not in (MAGIC, BEFORE) or len(lead)",
    "if status.get(",
    "if not isinstance(found, dict):",
    "if not isinstance(runs, list)",
    "if steps < (least",
    "            directory.extend(steps)",
    "                directory.note_start(step)",
    "    refuse_other_scores",
    "stopped = stops(callback(training))",
    "trainer.state = starting.begun",
    "self._copy(trainer.state) + ",
    "if isinstance(start, dict) and",
    "        if told is not None:",
    "if any(directory.checkpoints.glob",
    "if not isinstance(told, dict)",
    "if told and told != {",
    "return False if ended else None",
)
PLANNING = [
    ("planning.py", "across = inside[:, :, None] * across", "across = 1 * across"),
    ("planning.py", "jnp.where(own, variance[:, :, None], between)", "between"),
    ("planning.py", "/ 2 + aleatoric + epistemic", "/ 2 + aleatoric"),
    (
        "planning.py",
        "carried = matmul(matmul(slope, joint), slope.mT)",
        "carried = slope @ (joint * jnp.eye(joint.shape[1])) @ slope.mT",
    ),
    ("planning.py", "return (discount * gamma, mean, covariance)", "return (discount, mean, covariance)"),
    ("planning.py", "jnp.full((1, points), 1 / points)", "jnp.ones((1, points))"),
    ("reward.py", "belief.covariance / (scale[:, None] * scale)", "belief.covariance / scale"),
    ("reward.py", "self.statistics.mean + self.statistics.deviation * mm", "self.statistics.deviation * mm"),
    ("backup.py", "jnp.sum(curvature * curvature.T) / 2", "jnp.sum(curvature * curvature) / 2"),
    ("backup.py", "variances + jnp.square(means - prediction.weights @ means)", "variances"),
    ("planning.py", "joint, inside[:, :, None] * slope", "joint, slope"),
    ("agents/quadratic.py", "gamma = gamma**horizon", "gamma = gamma"),
    (
        "agents/quadratic.py",
        "self.world(state)._replace(critic=cast(QuadraticCritic, state.guide))",
        "self.world(state)",
    ),
    (
        "agents/quadratic.py",
        "newest, (state.targets, state.guide))",
        "newest, (state.targets, first(state.critics) if state.guide is not None else None))",
    ),
    ("agents/quadratic.py", "batch.reward + (1 - batch.terminated) * rewards", "batch.reward + rewards"),
    ("agents/planning.py", "jnp.concatenate([plan[1:], plan[-1:]])", "plan"),
    ("agents/planning.py", "jnp.where(value(last) > value(policy), last, policy)", "last"),
    ("agents/planning.py", "train.gamma ** jnp.arange(len(plan) + 1)", "train.gamma ** jnp.zeros(len(plan) + 1)"),
    ("agents/planning.py", "jnp.where(found > most, new, old)", "new"),
    ("forecast.py", "gained(prior[None], noise[None])[0]", "prior"),
    ("forecast.py", "moved + shown, prior - shown", "moved, prior - shown"),
    ("forecast.py", "total, noise = moved + prior", "total, noise = prior"),
    ("forecast.py", "else belief.covariance", "else 0 * belief.covariance"),
]
# The tests most likely to notice a mutant in a file go first, as most mutants then need no other.
LIKELY = {
    "closed_forms/independent.py": "test_supports",
    "closed_forms/matern.py": "test_supports",
    "closed_forms/points.py": "test_expectation",
    "closed_forms/polynomial.py": "test_expectation",
    "closed_forms/rbf.py": "test_expectation",
    "closed_forms/ridge.py": "test_covariance",
    "_checks.py": "test_errors",
    "_special.py": "test_covariance",
    "distributions.py": "test_expectation",
    "dispatch.py": "test_errors",
    "gp.py": "test_gp",
    "mixtures.py": "test_identities",
    "networks.py": "test_networks",
    "numerical.py": "test_propagation",
    "propagation.py": "test_propagation",
    "supports.py": "test_supports",
}
# where the mutants live, what they are, and what should notice
IMAGINATION = [
    ("imagination.py", "jnp.clip(greedy + noise * jax.random.normal(action_key, greedy.shape), -1, 1)", "greedy"),
    (
        "imagination.py",
        "jnp.clip(greedy + noise * jax.random.normal(action_key, greedy.shape), -1, 1)",
        "greedy + noise * jax.random.normal(action_key, greedy.shape)",
    ),
    ("imagination.py", "reward=world.reward.at(states, now.observation, action)", "reward=now.reward"),
    ("imagination.py", "return now._replace(observation=cast(Any, prediction).mean)", "return now"),
    ("imagination.py", "terminated=jnp.zeros_like(batch.terminated)", "terminated=batch.terminated"),
    ("imagination.py", "jnp.square(ensemble.statistics.deviation[1])", "ensemble.statistics.deviation[1]"),
    ("imagination.py", "ensemble.statistics.deviation[1]", "ensemble.statistics.deviation[0]"),
    ("imagination.py", "jnp.maximum(1 - 2 * share_done(config, updates), 0)", "1.0"),
    ("agents/quadratic.py", "joined((batch, predictions), more)", "joined(more, more)"),
    ("agents/quadratic.py", "batch.action, batch.action_variance)", "batch.action, None)"),
    (
        "imagination.py",
        "clipped(greedy, jnp.broadcast_to(jnp.square(noise), greedy.shape))",
        "greedy, jnp.full_like(greedy, noise**2)",
    ),
    (
        "imagination.py",
        "[jnp.zeros_like(now.observation), variance]",
        "[jnp.zeros_like(now.observation), 0 * variance]",
    ),
    ("imagination.py", "* jnp.sqrt(variance)[:, None]", "* variance[:, None]"),
    ("imagination.py", "whole.covariance + more)", "whole.covariance + more * jnp.eye(more.shape[-1]))"),
    ("imagination.py", "prediction.points + matmul(moves, root.mT)", "prediction.points"),
    ("imagination.py", "whole.components.covariance + more[:, None]", "whole.components.covariance"),
    ("imagination.py", "first = first._replace(action_variance", "first._replace(action_variance"),
    ("critic.py", "- jnp.sum(self.factor * (covariance @ self.factor)) / 2", ""),
    ("critic.py", "self.factor * (covariance @ self.factor)", "covariance * (self.factor.T @ self.factor)"),
    ("critic.py", "self.greedy @ (P @ self.greedy / 2 - self.slope)", "self.greedy @ (P @ self.greedy - self.slope)"),
    ("critic.py", "mm.Quadratic(-P, self.slope", "mm.Quadratic(-P, P @ self.greedy"),
    ("reward.py", "belief.variance / jnp.square(scale)", "belief.variance / scale"),
    ("config/fitting.py", 'asked and config.agent == "moca-ce"', "False"),
    ("agents/quadratic.py", "curiosity_left(self.config, state.updates) * unknown", "unknown"),
]

HORIZONS = [
    ("horizons.py", "2 * jnp.sum(slope * rows.across, axis=-1) + discount * own", "discount * own"),
    ("horizons.py", "jnp.sum(slope * rows.across, axis=-1) + discount * own", "jnp.sum(slope * rows.across, axis=-1)"),
    ("horizons.py", "self._average(within + jnp.square(away))", "self._average(within)"),
    ("horizons.py", "discount = gamma ** jnp.arange(1, horizon + 1)", "discount = gamma ** jnp.arange(horizon)"),
    ("horizons.py", "(1 - batch.terminated) * reward", "reward"),
    ("horizons.py", "2 * jnp.sum(slope * across, axis=1) + discount * own", "discount * own"),
    ("horizons.py", "now.variance + discount * (2", "discount * (2"),
    ("horizons.py", "[now.across, _times(step.gain, now.across)]", "[now.across, 0 * _times(step.gain, now.across)]"),
    ("horizons.py", "across + discount * _times(step.joint, slope)", "discount * _times(step.joint, slope)"),
    ("horizons.py", "across + discount * _times(step.joint, slope)", "across + _times(step.joint, slope)"),
    ("horizons.py", "now.total + discount * step.reward", "now.total + step.reward"),
    ("horizons.py", "total=now.total + discount * reward", "total=now.total"),
    ("horizons.py", "jnp.maximum(variances, rounding)", "variances"),
    ("horizons.py", "variances.min(axis=0) / variances", "1 / jnp.square(variances)"),
    ("horizons.py", "shares / shares.sum(axis=0)", "shares"),
    ("horizons.py", "* jnp.abs(targets).max(axis=0)", "* 0"),
    ("horizons.py", "jnp.arange(1, len(weights) + 1) @", "jnp.arange(len(weights)) @"),
    ("backup.py", "matmul(matmul(slope, covariance), slope) + jnp.sum", "jnp.sum"),
    ("config/fitting.py", "config.dynamics.samples < 2", "False"),
    ("agents/quadratic.py", 'if plan.weights == "variance":', "if False:"),
]

OUTCOMES = [
    ("outcomes.py", "jnp.clip(1 - jnp.mean(noise) / squares, 0, 1)", "1 - jnp.mean(noise) / squares"),
    ("outcomes.py", "jnp.clip(1 - jnp.mean(noise) / squares, 0, 1)", "jnp.clip(jnp.mean(noise) / squares, 0, 1)"),
    ("outcomes.py", "jnp.mean(difference**2)", "jnp.mean(difference) ** 2"),
    ("outcomes.py", "+ 4 * spread * noise", "+ spread * noise"),
    ("outcomes.py", "spread * noise / jnp.maximum(prior + noise", "spread * prior / jnp.maximum(prior + noise"),
    ("outcomes.py", "slopes**2 * by_noise", "slopes * by_noise"),
    ("agents/quadratic.py", "jnp.square(self.config.train.gamma * (1 - stored.terminated))", "1.0"),
    ("agents/quadratic.py", "target.at[:count].add(share * (outcomes - target[:count]))", "target"),
    ("agents/quadratic.py", "outcome_share(outcomes - target[:count], variance)", "outcome_share(outcomes, variance)"),
    ("config/fitting.py", "belief.width or config.plan.horizon > 1", "False"),
]
SUITES = {
    "moments": ("moments", MOMENTS, ["tests/moments", "-m", "not slow"]),
    "directories": (
        "runs",
        DIRECTORIES,
        [
            "tests/attacks/test_directories.py",
            "tests/attacks/test_stateful.py",
            "tests/runs/test_checkpoint.py",
            "tests/runs/test_steering.py",
            "-m",
            "not slow",
        ],
    ),
    "stateful": (
        "runs",
        [mutant for mutant in DIRECTORIES if mutant[1].startswith(FIXES)],
        ["tests/attacks/test_stateful.py", "-m", "slow"],
    ),
    "planning": ("", PLANNING, ["tests/test_planning.py", "tests/agents/test_planning.py", "tests/test_forecast.py"]),
    "imagination": ("", IMAGINATION, ["tests/test_critic.py", "tests/test_imagination.py"]),
    "horizons": ("", HORIZONS, ["tests/test_horizons.py"]),
    "outcomes": ("", OUTCOMES, ["tests/test_outcomes.py"]),
    "claims": ("paper/claims", CLAIMS, [f"tests/paper/test_claim{end}.py" for end in ("_rules", "_scores", "s")]),
}


def tests_on(source: str, tests: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *tests, "-x", "-q"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}, capture_output=True, text=True,
    )  # fmt: skip


def place(source: Path, folder: str, file: str) -> Path:
    """A suite's file, in its folder or at the top of the package."""
    return next(path for path in (source / "moca" / folder / file, source / "moca" / file) if path.exists())


def misplaced(source: Path, folder: str, file: str, old: str) -> str:
    """The reason why a mutant cannot be made; empty if its line stands in the file once."""
    count = place(source, folder, file).read_text().count(old)
    return "" if count == 1 else f"{old!r} stands {count} times in {file}"


def surviving(name: str) -> list[str]:
    """The mutants of a suite that survive. Two are tried at a time."""
    folder, mutants, tests = SUITES[name]
    if tests_on(str(ROOT / "src"), tests).returncode:
        raise SystemExit("the tests fail before anything is broken: nothing can be learned from them")
    if found := [reason for file, old, _ in mutants if (reason := misplaced(ROOT / "src", folder, file, old))]:
        raise SystemExit("\n".join(found))
    survivors, killers = [], json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    known = {one: by for one, by in killers.get(name, {}).items() if one in map(label, mutants)}
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda mutant: killer(folder, mutant, tests, known.get(label(mutant))), mutants)
        for number, (mutant, by) in enumerate(zip(mutants, found, strict=True), 1):
            print(f"{number:2d}/{len(mutants)} {f'killed by {by}' if by else 'SURVIVED'}: {label(mutant)}", flush=True)
            survivors += [] if by else [label(mutant)]
            known |= {label(mutant): by} if by and "::" in by else {}
            KILLERS.write_text(
                json.dumps({**killers, name: known}, indent=0, sort_keys=True, ensure_ascii=False) + "\n"
            )
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants of {name} killed")
    return survivors


def killer(folder: str, mutant: tuple[str, str, str], tests: list[str], known: str | None) -> str | None:
    """Returns the test that notices a mutant, or None.

    The one that noticed it last time is tried first, then those that are likely to, then all.
    """
    file, old, new = mutant
    likely = [[f"tests/{folder}/{LIKELY[file]}.py", *tests[1:]]] if folder == "moments" and file in LIKELY else []
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(ROOT / "src", copy, dirs_exist_ok=True)
        path = place(Path(copy), folder, file)
        path.write_text(path.read_text().replace(old, new))
        for chosen in [[known]] * bool(known) + likely + [tests]:
            run = tests_on(copy, chosen)
            failed = re.search(r"^FAILED (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
            # A test that is gone, or not collected, is no test that fails.
            if failed or (run.returncode and chosen != [known]):
                return failed[1] if failed else "an error before any test"
    return None


def label(mutant: tuple[str, str, str]) -> str:
    return " → ".join(mutant)


def main(names: list[str]) -> int:
    return sum(len(surviving(name)) for name in names or SUITES) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
