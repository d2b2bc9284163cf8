"""Figure 1: the printed numbers, and pictures that are the same bytes twice."""

import jax
import numpy as np
import pytest

from moca import figures
from moca import moments as mm
from moca.paper import toy


def test_the_printed_expectations():
    problem = toy.Toy()
    assert round(float(mm.expectation(problem.belief(problem.mean_a), problem.value)), 3) == 0.057
    assert round(float(mm.expectation(problem.belief(problem.mean_b), problem.value)), 3) == 0.025


def test_estimates_are_unbiased_and_sharpen_with_samples():
    problem = toy.Toy()
    belief = problem.belief(problem.mean_a)
    exact, variance = mm.expectation(belief, problem.value), mm.variance(belief, problem.value)
    for count in (1, 16):
        each = np.asarray(toy.estimates(belief, problem.value, jax.random.key(0), count, 8000))
        assert abs(each.mean() - exact) < 4 * np.sqrt(variance / count / len(each))
        squares = (each - each.mean()) ** 2
        assert abs(squares.mean() - variance / count) < 4 * squares.std() / np.sqrt(len(each))


def test_the_wrong_action_gets_rarer_with_samples():
    rates = [toy.wrong_action_rate(toy.Toy(), jax.random.key(0), count, 4000) for count in (1, 16, 256)]
    assert rates[0] > rates[1] > rates[2]
    assert 0.3 < rates[0] < 0.5
    assert rates[2] < 0.03


def test_the_same_bytes_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(toy, "SAMPLES", (1, 4))
    monkeypatch.setattr(toy, "TRIALS", 1000)
    first, second = toy.draw(tmp_path / "a"), toy.draw(tmp_path / "b")
    assert [path.suffix for path in first] == [".pdf", ".svg", ".png"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("kind", ["protanopia", "deuteranopia"])
def test_colours_stay_apart(kind):
    """Simulated red- and green-blindness (Viénot, Brettel and Mollon 1999) leaves every pair of colours distinct."""
    rows = {
        "protanopia": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deuteranopia": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    }[kind]
    colours = [
        np.array([int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for k, c in figures.COLOURS.items() if k != "grey"
    ]
    seen = [np.array(rows) @ c**2.2 for c in colours]
    gaps = [
        np.abs(np.maximum(a, 0) ** (1 / 2.2) - np.maximum(b, 0) ** (1 / 2.2)).max()
        for a in seen
        for b in seen
        if a is not b
    ]
    assert min(gaps) > 0.1
