"""The film of a forecast: what is drawn lies where the numbers say."""

import mujoco
import numpy as np
import pytest
from matplotlib.path import Path as Outline

from moca.envs.playground import Playground
from moca.looks import look
from moca.runs import forecast_film
from moca.runs.inspection.view import View
from moca.runs.sketch import SKETCHES

CARTPOLE = SKETCHES["CartpoleSwingup"]


@pytest.fixture(scope="module")
def view():
    """A pole that turns past its lowest point and up again; forecasts are what happens, give or take."""
    angle = np.linspace(2.8, 6.2, 12)
    x = np.linspace(-0.5, 0.5, 12)
    outcome = np.stack([x, np.cos(angle), np.sin(angle), x, angle], axis=1)
    later = np.minimum(np.arange(12)[:, None] + np.arange(1, 4), 11)
    root = np.random.default_rng(0).normal(size=(5, 5)) * 0.1
    covariance = np.broadcast_to(root @ root.T, (12, 3, 5, 5))
    arrays = {"observed": outcome, "ahead": outcome[later], "ahead_covariance": covariance}
    arrays |= {"reward": np.arange(12), "ahead_reward": np.arange(12)[:, None] + np.arange(3)}
    return View(look("moca"), "seed 0", arrays, sketch=CARTPOLE)


def test_a_frame_for_every_step(view):
    frames = forecast_film.draw(view, CARTPOLE, 0.04, "title", every=5)
    assert len(frames) == 3
    assert {frame.shape for frame in frames} == {(620, 720, 3)}
    assert (frames[0] != frames[1]).any()


@pytest.fixture
def figure():
    import matplotlib.pyplot as plt

    from moca import figures

    with figures.style():
        made = plt.figure()
        yield made
        plt.close(made)


def test_ellipses_hold_their_shares(figure, view):
    """Of a sampled Gaussian with the predicted moments."""
    scene = forecast_film.Scene(figure.subplots(), view, CARTPOLE)
    scene.show(2, 0.04)
    draws = np.random.default_rng(1).multivariate_normal(
        view.arrays["ahead"][2, 1], view.arrays["ahead_covariance"][2, 1], 20_000
    )
    tips = CARTPOLE.places(draws)[:, 1]
    for count, share in ((1, 0.6827), (2, 0.9545)):
        outline = scene.ellipses[count].get_paths()[3]  # the tip after the second decision
        assert Outline(outline.vertices).contains_points(tips).mean() == pytest.approx(share, abs=0.015)
    np.testing.assert_allclose(np.array(scene.future.get_data()).T, CARTPOLE.places(view.outcome)[3:6, 1])


def test_panels_go_on_from_the_present(figure, view):
    """Without a jump of a whole turn; what happened lies on a forecast that is right."""
    tracks = forecast_film.panels(figure, view, CARTPOLE, 0.04)
    assert len(tracks) == 3
    for track in tracks:
        for t in (0, 3):
            track.show(t)
            np.testing.assert_allclose(track.line.get_ydata(), track.future.get_ydata(), atol=1e-4)
        assert len(track.past.get_xdata()) == 4
        np.testing.assert_allclose(track.past.get_xdata()[-1], 0)
    assert abs(tracks[0].came[-1]) < 10  # it stands at zero degrees
    draws = np.random.default_rng(1).multivariate_normal(
        view.arrays["ahead"][2, 1], 1e-3 * view.arrays["ahead_covariance"][2, 1], 20_000
    )
    found = CARTPOLE.angle_deviations(view.arrays["ahead"][2, 1], 1e-3 * view.arrays["ahead_covariance"][2, 1])
    assert found == pytest.approx(CARTPOLE.angles(draws).std(), rel=0.03)


@pytest.mark.parametrize("task", ["CartpoleSwingup", "PendulumSwingup"])
def test_points_are_mujocos(task):
    """The tip is the end of the pole, for observations as Playground makes them."""
    sketch, model = SKETCHES[task], Playground(task).env.mj_model
    data = mujoco.MjData(model)
    data.qpos[:] = [0.3, 2.0][-model.nq :]
    mujoco.mj_forward(model, data)
    body = model.body("pole_1" if model.nq == 2 else "pole").id
    turned = data.xmat[body].reshape(3, 3)
    size = 1.0 if model.nq == 2 else 0.5
    tip = data.xpos[body] + turned @ [0, 0, size]
    cosine, sine = turned[2, 2], turned[0, 2]
    observation = [data.qpos[0], cosine, sine, 0, 0] if model.nq == 2 else [sine, cosine, 0]
    np.testing.assert_allclose(sketch.places(np.array(observation)), [data.xpos[body][[0, 2]], tip[[0, 2]]], atol=1e-7)
    assert sketch.angles(np.array(observation)) == pytest.approx(np.degrees(2.0))
