"""Small policies of every kind, as facts and arrays, and how to write them with anything changed."""

import io
import itertools
import json
import struct
import warnings
import zipfile

import numpy as np

from moca import deploy

OBSERVED, ACTIONS, WIDTH, MEMBERS = 3, 2, 4, 2


def network(rng, name, sizes, lead=()):
    layers = {}
    for number, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        layers[f"{name}.weight{number}"] = rng.uniform(-1, 1, (*lead, fan_out, fan_in)).astype(np.float32)
        layers[f"{name}.bias{number}"] = rng.uniform(-1, 1, (*lead, fan_out)).astype(np.float32)
    return layers


def filtered(rng, full=False, scaled=False, learned=False):
    below = OBSERVED * (OBSERVED - 1) // 2 if full else 0
    sizes = (OBSERVED + ACTIONS, WIDTH, 2 * OBSERVED + below)
    arrays = network(rng, "ensemble", sizes, (MEMBERS,))
    arrays["statistics.mean"] = rng.uniform(-1, 1, (2, OBSERVED)).astype(np.float32)
    arrays["statistics.deviation"] = np.array([[0.8] * OBSERVED, [0.2] * OBSERVED], np.float32)
    if learned:
        arrays["noise.variance"] = np.full(OBSERVED, 0.01, np.float32)
        arrays["noise.growing"] = np.full(OBSERVED, 0.04, np.float32)
        arrays["noise.shares"] = np.array([0.2, 0.5, 0.3], np.float32)
        arrays["noise.most"] = np.full(OBSERVED, 2.0, np.float32)
        arrays["ensemble.calibration"] = np.full(OBSERVED, 0.9, np.float32)
        arrays["ensemble.added"] = np.full(OBSERVED, 0.1, np.float32)
    elif scaled:
        arrays["noise.range"] = np.array([0.02, 0.1], np.float32)
        arrays["noise.inverse_scales"] = np.array([2.0, 0.0, 0.5])
    else:
        arrays["noise.variance"] = np.full(OBSERVED, 0.01, np.float32)
    facts = {"filter": True, "full_covariance": full, "log_variance": [-14.0, 4.0], "raised": 3e-4}
    return facts | ({"activation": "gelu"} if full else {}), arrays


def quadratic(rng, head, full):
    arrays = network(rng, "trunk", (OBSERVED, WIDTH, WIDTH)) | network(rng, "vertex", (WIDTH, ACTIONS))
    arrays |= network(rng, "cholesky", (WIDTH, ACTIONS + (ACTIONS * (ACTIONS - 1) // 2 if full else 0)))
    return {"kind": "quadratic", "head": head, "full": full}, arrays | {"floor": np.float32(1e-3)}


def actor(rng):
    return {"kind": "actor"}, network(rng, "actor", (OBSERVED, WIDTH, 2 * ACTIONS))


def made(kind):
    """Facts and arrays of a policy that loads."""
    rng = np.random.default_rng(7)
    parts = {
        "actor": [actor(rng), ({"filter": False}, {})],
        "actor, filter": [actor(rng), filtered(rng)],
        "slope, filter": [quadratic(rng, "slope", False), filtered(rng, scaled=True)],
        "vertex, full, filter": [quadratic(rng, "vertex", True), filtered(rng, full=True)],
        "tanh": [quadratic(rng, "tanh", False), ({"filter": False}, {})],
        "slope, learned noise": [quadratic(rng, "slope", False), filtered(rng, learned=True)],
    }[kind]
    facts = {"env": "Plane", "seed": 3, "noise": {"kind": "homoscedastic", "sigma": 0.1}, "format": deploy.FORMAT}
    facts |= {"version": "0.1.0", "agent": "any", "observation_size": OBSERVED, "action_repeat": 2}
    arrays = {"action_low": np.array([-1.0, 0.1]), "action_high": np.array([3.0, 0.7])}
    for more_facts, more_arrays in parts:
        facts |= more_facts
        arrays |= more_arrays
    return facts, arrays


KINDS = ("actor", "actor, filter", "slope, filter", "vertex, full, filter", "tanh", "slope, learned noise")


def packed(facts, arrays):
    """The bytes of a policy file; the facts may be text."""
    text = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
    held = io.BytesIO()
    np.savez_compressed(held, **arrays, header=np.frombuffer(text, np.uint8))
    return held.getvalue()


def zipped(members, **how):
    """A zip of these names and bytes, the same name twice where asked."""
    held = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(held, "w", **{"compression": zipfile.ZIP_DEFLATED, **how}) as file:
        warnings.simplefilter("ignore")  # about names that are there twice
        for name, content in members:
            file.writestr(name, content)
    return held.getvalue()


def npy(header, content=b"", version=(1, 0)):
    """An .npy file with that text for a header."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text + content


def members(facts, arrays):
    """What `packed` puts into the zip, as names and bytes."""
    with zipfile.ZipFile(io.BytesIO(packed(facts, arrays))) as file:
        return [(name, file.read(name)) for name in file.namelist()]


def is_whole(policy):
    """Whether a policy that was loaded acts within its bounds, and is not silenced by what it is shown."""
    low, high = policy.action_low.astype(np.float32), policy.action_high.astype(np.float32)
    rng = np.random.default_rng(0)
    size = policy.facts["observation_size"]
    for number in range(6):
        observation = rng.normal(size=size)
        observation[0] = np.nan if number in (2, 3) else observation[0]
        try:
            action = policy(observation)
        except ValueError:
            continue
        if not (np.isfinite(action).all() and (low <= action).all() and (action <= high).all()):
            return False
    numbers = [policy.action_low, policy.action_high]
    return all(np.isfinite(each).all() for each in numbers) and (low < high).all()
