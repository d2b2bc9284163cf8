"""The named grids: those of the paper, and those that go beyond it. Nothing here imports jax."""

from moca.paper.tasks import CARTPOLE, PENDULUM
from moca.studies.grid import Block, Grid

_NOISES = ("0.025", "0.05", "state-norm 0.05")
_RAW_CARTPOLE = ("0", "0.025", "0.05", "0.1", "state-norm 0.05", "state-norm 0.2")
_RAW_PENDULUM = ("0.025", "0.05", "0.1")
_BASELINES = ("sac", "bnaf", "moca-ce")
_CORE = ("bnaf", "moca-ce", "moca-mc-4", "moca-mc-16", "moca")
_VARIANTS = ("naf", "moca-mc-1", "moca-mixture")
_DISTURBED = ("bnaf", "moca-ce", "moca-mc-4", "moca")
_UNTUNED = {  # tasks that were not used for tuning, with settings
    "CartpoleSwingup": {},
    "AcrobotSwingup": {},
    "BallInCup": {},
    "PointMass": {},
    "ReacherEasy": {},
    "gymnasium:Pendulum-v1": {"env.episode_length": 200},
}


def _raw(name: str, *blocks: Block, seed: int = 2000, seeds: int = 30, presets: tuple[str, ...] = ("raw",)) -> Grid:
    """Returns a grid of agents that treat the noisy observation as the state, as the paper's do."""
    return Grid(name, blocks, presets, seed, seeds, films=())


_ALL = (
    _raw(
        "raw-cartpole",
        Block(CARTPOLE, _CORE, _RAW_CARTPOLE),
        Block(CARTPOLE, _VARIANTS, ("0.05",)),
        seeds=40,
    ),
    _raw(
        "raw-pendulum",
        Block(PENDULUM, _CORE, _RAW_PENDULUM, 250_000),
        Block(PENDULUM, _VARIANTS, ("0.05",), 250_000),
    ),
    # To decide whether closed form and sampling end equally takes more seeds: 120 with those of
    # raw-cartpole.
    _raw("raw-alike", Block(CARTPOLE, ("moca-mc-4", "moca-mc-16", "moca"), ("0.05",)), seed=2040, seeds=80),
    # Noise so weak that the covariance may not matter, to test a predictor of whether it does.
    _raw(
        "raw-weak",
        Block(CARTPOLE, ("moca-ce", "moca"), ("0.0125",)),
        Block(PENDULUM, ("moca-ce", "moca"), ("0",), 250_000),
    ),
    # Levels between those of the other studies, to test that predictor a third time.
    _raw(
        "raw-between",
        Block(CARTPOLE, ("moca-ce", "moca"), ("0.035", "state-norm 0.1", "action 0.25")),
        Block(PENDULUM, ("moca-ce", "moca"), ("0.0125", "0.035", "action 0.25"), 250_000),
        seeds=20,
    ),
    _raw(
        "told-between",
        Block(CARTPOLE, ("moca-ce", "moca"), ("state-norm 0.2",)),
        Block(PENDULUM, ("moca-ce", "moca"), ("0.1",), 250_000),
        seeds=20,
        presets=("told",),
    ),
    # SAC with searched settings at every level, and with the usual settings at one.
    _raw(
        "raw-sac-cartpole",
        Block(CARTPOLE, ("sac",), _RAW_CARTPOLE),
        Block(CARTPOLE, ("sac-usual",), ("0.05",)),
        seeds=40,
    ),
    _raw(
        "raw-sac-pendulum",
        Block(PENDULUM, ("sac",), _RAW_PENDULUM, 250_000),
        Block(PENDULUM, ("sac-usual",), ("0.05",), 250_000),
    ),
    # Process noise, which a filter cannot remove.
    _raw(
        "process",
        Block(CARTPOLE, _DISTURBED, ("action 0.5",)),
        Block(PENDULUM, _DISTURBED, ("action 0.5",), 250_000),
        seeds=20,
        presets=("raw", "told"),
    ),
    # A filter that learns the noise, for every agent and kind of noise.
    Grid(
        "tuned-cartpole",
        (Block(CARTPOLE, (*_BASELINES, "moca-mc-4", "moca", "naf"), (*_RAW_CARTPOLE, "action 0.5")),),
        presets=("tuned",),
        films=(),
    ),
    Grid(
        "tuned-pendulum",
        (Block(PENDULUM, ("sac", *_CORE, "naf"), (*_RAW_PENDULUM, "action 0.5"), 250_000),),
        presets=("tuned",),
        films=(),
    ),
    # Figure 2 of the paper, and the tanh-squashed NAF, whose saturation BNAF avoids according to
    # the paper.
    Grid(
        "cartpole",
        (Block(CARTPOLE, (*_BASELINES, "moca", "naf"), _NOISES),),
        presets=("paper", "told"),
    ),
    # Figure 3. Under `told` the quadratic agents have converged by 200k steps; SAC and NAF take
    # longer [choice].
    Grid(
        "pendulum",
        (Block(PENDULUM, (*_BASELINES, "moca-mc-4", "moca-mc-16", "moca", "naf"), _NOISES[:2], 500_000),),
        presets=("paper", "told"),
    ),
    # Return against noise, which the paper discusses in its section on noise.
    Grid(
        "degradation",
        (Block(CARTPOLE, (*_BASELINES, "moca"), ("0", "0.0125", "0.025", "0.05", "0.1")),),
        presets=("told",),
    ),
    # SAC with the same width as the other agents. There is no noise, and none is learned.
    Grid(
        "further",
        tuple(
            Block(env, ("sac", "moca"), ("0",), settings={"sac.width": 64, **settings})
            for env, settings in _UNTUNED.items()
        ),
        presets=("told",),
        seeds=5,
    ),
)
GRIDS = {grid.name: grid for grid in _ALL}
