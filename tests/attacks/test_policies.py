"""Policies that were crafted, damaged or changed: refused in one sentence that names the file, or whole."""

import json
import os
import resource
import socket
import struct
import tracemalloc
import zipfile

import jax
import numpy as np
import pytest

from moca.agents import make_agent
from moca.config import Config, ConfigError, override
from moca.deploy import Policy
from moca.deploy.checks import LIMIT
from moca.deploy.files import read_arrays
from moca.files import DiskError
from moca.runs import export
from moca.runs.directory import RunDirectory
from tests.attacks.policies import KINDS, OBSERVED, is_whole, made, members, npy, packed, zipped
from tests.test_deploy import Plane, learners_of


@pytest.mark.parametrize("kind", KINDS)
def test_the_policies_that_are_attacked_load_as_they_are(tmp_path, kind):
    (tmp_path / "p.npz").write_bytes(packed(*made(kind)))
    assert is_whole(Policy.load(tmp_path / "p.npz"))


def facts_with(**changed):
    """The bytes of a policy whose header says something else."""
    facts, arrays = made("slope, filter")
    return packed({name: value for name, value in (facts | changed).items() if value is not ...}, arrays)


def arrays_with(kind="slope, filter", **changed):
    facts, arrays = made(kind)
    changed = {name.replace("__", "."): value for name, value in changed.items()}
    return packed(facts, {name: value for name, value in (arrays | changed).items() if value is not ...})


def member_with(name, content):
    """The bytes of a policy one of whose members has other bytes."""
    changed = [(each, content if each == f"{name}.npy" else old) for each, old in members(*made("slope, filter"))]
    return zipped(changed)


def flagged(offset, value):
    """The bytes of a zip with a field of two bytes changed in every entry of its directory, and in its members."""
    content = bytearray(packed(*made("actor")))
    for signature, shift in ((b"PK\x01\x02", 2), (b"PK\x03\x04", 0)):
        place = content.find(signature)
        while place >= 0:
            content[place + offset + shift : place + offset + shift + 2] = struct.pack("<H", value)
            place = content.find(signature, place + 4)
    return bytes(content)


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (2000000000,), }"
weight = "trunk__weight0"
CRAFTED = {
    # The file
    "empty": (b"", "damaged"),
    "text": (b"no policy", "damaged"),
    "a pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.", "damaged"),
    "half": (packed(*made("actor"))[:700], "damaged"),
    "no members": (zipped([]), "no header"),
    "not arrays": (zipped([("readme.txt", b"hello")]), "magic string"),
    "encrypted": (flagged(6, 1), "encrypted"),
    "unknown compression": (flagged(8, 97), "compressed in a way"),
    "bzip2": (zipped(members(*made("actor")), compression=zipfile.ZIP_BZIP2), "compressed in a way"),
    "a name twice": (zipped(members(*made("actor")) * 2), "two arrays with the same name"),
    # Its arrays
    "8 GB in one array": (member_with("trunk.weight0", npy(HUGE)), "a length that does not match its shape"),
    "a negative shape": (member_with("floor", npy(HUGE.replace("2000000000", "-4"))), "does not match its shape"),
    "a shape that overflows": (member_with("floor", npy(HUGE.replace("2000000000", "1" + "0" * 40))), "does not match"),
    "nothing by a great deal": (member_with("floor", npy(HUGE.replace("2000000000,", "0, 1" + "0" * 40))), "dimension"),
    "a nested header": (member_with("floor", npy("(" * 5000)), "damaged|header"),
    "a header without end": (member_with("floor", b"\x93NUMPY\x01\x00\xff\xff{"), "EOF"),
    "a header of another age": (member_with("floor", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1L,)}")),
                                "damaged"),
    "version 3": (member_with("floor", npy(HUGE, version=(3, 0))), "version"),
    "objects": (member_with("floor", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8))),
                "not plain numbers"),
    "records": (member_with("floor", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", bytes(4))),
                "not plain numbers"),
    "strings": (arrays_with(floor=np.array("0.1")), "not plain numbers"),
    "complex numbers": (arrays_with(floor=np.array(1j)), "not plain numbers"),
    "another byte order": (arrays_with(floor=np.array(0.1, ">f4")), "not plain numbers"),
    "whole numbers": (arrays_with(floor=np.array(1)), "int64, not float32 or float64"),
    "a missing weight": (arrays_with(trunk__weight1=...), "trunk.bias1|unknown arrays|vertex.weight0"),
    "a missing bias": (arrays_with(trunk__bias1=...), "it has no trunk.bias1"),
    "no noise": (arrays_with(noise__range=...), "it has no noise.range"),
    "too many arrays": (arrays_with(other=np.ones(3)), "unknown arrays"),
    "layers that do not fit": (arrays_with(trunk__weight0=np.ones((5, OBSERVED))), "has shape"),
    "a layer of nothing": (arrays_with(trunk__weight1=np.ones((0, 4)), trunk__bias1=np.ones(0)), "with 0 outputs"),
    "a layer of one axis": (arrays_with(trunk__weight0=np.ones(OBSERVED)), "has shape"),
    "an ensemble of none": (arrays_with(ensemble__weight0=np.ones((0, 4, 5)), ensemble__bias0=np.ones((0, 4))),
                            "has shape|too large"),
    "NaN weights": (arrays_with(trunk__weight0=np.full((4, OBSERVED), np.nan)), "not finite"),
    "infinite weights": (arrays_with(ensemble__weight0=np.full((2, 4, 5), np.inf)), "not finite"),
    "absurd weights": (arrays_with(trunk__weight0=np.full((4, OBSERVED), 1e30)), "beyond"),
    "a negative floor": (arrays_with(floor=np.array(-1e-3)), "floor is -0.001"),
    "bounds that cross": (arrays_with(action_low=np.array([-1.0, 2.0])), "action_low must be below action_high"),
    "bounds that meet": (arrays_with(action_low=np.array([-1.0, 0.7])), "action_low must be below action_high"),
    "a bound of NaN": (arrays_with(action_high=np.array([3.0, np.nan])), "'action_high' contains"),
    "an infinite bound": (arrays_with(action_low=np.array([-np.inf, 0.1])), "'action_low' contains"),
    "no actions": (arrays_with(action_low=np.ones(0), action_high=np.ones(0)), "one to a thousand dimensions"),
    "a deviation of 0": (arrays_with(statistics__deviation=np.zeros((2, OBSERVED))), "deviation must be above 0"),
    "negative noise": (arrays_with("actor, filter", noise__variance=np.full(OBSERVED, -1.0)), "must not be negative"),
    "noise that falls": (arrays_with(noise__range=np.array([0.2, 0.1])), "noise.range must increase"),
    "no scales": (arrays_with(noise__inverse_scales=np.zeros(OBSERVED)), "noise.inverse_scales"),
    # Its header
    "no header": (zipped(members(*made("actor"))[:-1]), "no header"),
    "a header of numbers": (zipped([*members(*made("actor"))[:-1], ("header.npy", npy(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", bytes(8)))]), "no header"),
    "no JSON": (packed(b"{", made("actor")[1]), "header cannot be read"),
    "no UTF-8": (packed(b"\xff\xfe{\x00", made("actor")[1]), "header"),
    "a list": (packed(b"[1]", made("actor")[1]), "not a JSON object"),
    "deep nesting": (packed(b"[" * 100_000, made("actor")[1]), "header cannot be read"),
    "a fact twice": (packed(b'{"format": 1, "format": 1}', made("actor")[1]), "twice"),
    "format true": (facts_with(format=True), "has format True"),
    "format 2": (facts_with(format=2), "has format 2, but this version of moca reads format 1"),
    "no kind": (facts_with(kind=...), "lacks the fact kind"),
    "another kind": (facts_with(kind="os.system"), "its kind is 'os.system', not one of actor, quadratic"),
    "a list of heads": (facts_with(head=["slope"]), "its head is"),
    "another head": (facts_with(head="sloop"), "its head is 'sloop'"),
    "another activation": (facts_with(activation="relu"), "its activation is 'relu', not one of silu"),
    "filter 1": (facts_with(filter=1), "its filter is 1, not true or false"),
    "no observations": (facts_with(observation_size=0), "its observation_size is 0"),
    "half an observation": (facts_with(observation_size=2.5), "its observation_size is 2.5"),
    "10^400 observations": (facts_with(observation_size=10**400), "its observation_size is 1000"),
    "another observation": (facts_with(observation_size=4), "has shape"),
    "no repeat": (facts_with(action_repeat=0), "its action_repeat is 0"),
    "a repeat in words": (facts_with(action_repeat="2"), "its action_repeat is '2'"),
    "a range that falls": (facts_with(log_variance=[4, -14]), "its log_variance is"),
    "a range of NaN": (facts_with(log_variance=[float("nan"), 4]), "its log_variance is"),
    "a range of words": (facts_with(log_variance="ab"), "its log_variance is 'ab'"),
    "raised by infinity": (facts_with(raised=float("inf")), "its raised is inf"),
    "an environment of numbers": (facts_with(env=5), "its env is 5, not a string"),
}  # fmt: skip


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_policy_is_one_sentence(tmp_path, case):
    content, words = CRAFTED[case]
    path = tmp_path / "crafted.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as refused:
        Policy.load(path)
    message = str(refused.value)
    assert message.startswith(f"{path} is not a policy exported")
    assert "\n" not in message
    assert len(message) < 500


def test_what_is_claimed_is_not_allocated(tmp_path):
    """The sizes are known, and refused, before there is memory for them."""
    with zipfile.ZipFile(tmp_path / "huge.npz", "w", zipfile.ZIP_DEFLATED) as file, file.open("a.npy", "w") as member:
        member.write(npy(HUGE.replace("2000000000", "75000000")))
        for _ in range(300):
            member.write(bytes(10**6))
    with zipfile.ZipFile(tmp_path / "head.npz", "w", zipfile.ZIP_DEFLATED) as file, file.open("a.npy", "w") as member:
        member.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**8))
        for _ in range(100):
            member.write(b" " * 10**6)
    wide, deep = np.zeros((1, 10**6, 5), np.float32), np.zeros((1, 1, 10**6), np.float32)
    facts, arrays = made("actor, filter")
    arrays |= {"ensemble.weight0": np.zeros((1, 1, 1502), np.float32), "ensemble.bias0": np.zeros((1, 1), np.float32)}
    arrays |= {"ensemble.weight1": wide[..., :1], "ensemble.bias1": wide[..., 0], "ensemble.weight2": deep}
    arrays |= {"ensemble.bias2": np.zeros((1, 1), np.float32), "ensemble.weight3": np.zeros((1, 3000, 1), np.float32)}
    arrays |= {"ensemble.bias3": np.zeros((1, 3000), np.float32), "noise.variance": np.ones(1500, np.float32)}
    arrays |= {f"statistics.{name}": np.ones((2, 1500), np.float32) for name in ("mean", "deviation")}
    arrays |= {"actor.weight0": np.zeros((4, 1500), np.float32)}
    (tmp_path / "wide.npz").write_bytes(packed(facts | {"observation_size": 1500}, arrays))
    assert os.path.getsize(tmp_path / "wide.npz") < 100_000
    told = {"huge": "claims to have 300,", "head": "header", "wide": "is too large"}
    for (name, words), most in zip(told.items(), (1e6, 1e6, 1e8), strict=True):
        tracemalloc.start()
        with pytest.raises(ValueError, match=words):
            Policy.load(tmp_path / f"{name}.npz")
        assert tracemalloc.get_traced_memory()[1] < most
        tracemalloc.stop()


def no_files(folder):
    """Things in the place of a file; opening some of them would wait for ever."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("absent")
    (folder / "device").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as made_here:
        made_here.bind(str(folder / "socket"))
    no_file, absent = "it is not a regular file", "there is no file"
    names = {"pipe": no_file, "device": no_file, "folder": "directory", "loop": "symbolic links", "nowhere": absent}
    names |= {"socket": "is not a policy exported", "absent": absent, "a\0b": "null"}
    return {folder / name: words for name, words in names.items()}


def test_what_is_no_file_is_one_sentence(tmp_path):
    for path, words in no_files(tmp_path).items():
        with pytest.raises(ValueError, match=words):
            Policy.load(path)
    for wrong in (None, 3, 2.5, b"x"):
        with pytest.raises(ValueError, match="is not a path"):
            Policy.load(wrong)


# In a run directory


def learners(value=0.5, dtype=np.float32):
    """What a run directory might hold: the structure is whatever `like` says."""
    return {"count": np.zeros(2, np.int32), "weight": np.full((2, 3), value, dtype), "scale": np.ones((), np.float32)}


def stored(tmp_path, **arrays):
    directory = RunDirectory(tmp_path)
    names = {"count": np.zeros(2, np.int32), "scale": np.ones((), np.float32), "weight": learners()["weight"]}
    np.savez(tmp_path / "policy.npz", **{n: a for n, a in (names | arrays).items() if a is not ...})
    return directory


def test_the_policy_of_a_run_is_checked_before_it_is_used(tmp_path):
    whole = stored(tmp_path).load_policy(learners())
    assert whole["weight"].tolist() == learners()["weight"].tolist()
    RunDirectory(tmp_path).save_policy(learners())
    assert set(read_arrays(tmp_path / "policy.npz")) == set(learners())
    numbered = {f"leaf{number:03d}": array for number, array in enumerate(jax.tree.leaves(learners(0.25)))}
    np.savez(tmp_path / "policy.npz", **numbered)  # as version 0.1.0 wrote it
    assert (RunDirectory(tmp_path).load_policy(learners())["weight"] == 0.25).all()
    weight = learners()["weight"]
    for words, arrays in (
        ("not finite, in weight", {"weight": np.full((2, 3), np.nan, np.float32)}),
        ("its arrays have other names", {"weight": weight.T.copy()}),
        ("its arrays have other names", {"weight": weight.astype(np.float64)}),
        ("its arrays have other names", {"weight": weight.view(np.int32)}),
        ("its arrays have other names", {"weight": ...}),
        ("its arrays have other names", {"scale": ..., "scales": np.ones((), np.float32)}),
        ("not plain numbers", {"weight": np.array(["a"])}),
    ):
        with pytest.raises(ConfigError, match=words) as refused:
            stored(tmp_path, **arrays).load_policy(learners())
        assert str(tmp_path / "policy.npz") in str(refused.value)
    (tmp_path / "policy.npz").unlink()
    with pytest.raises(ConfigError, match=r"has no policy.npz"):
        RunDirectory(tmp_path).load_policy(learners())
    os.mkfifo(tmp_path / "policy.npz")
    with pytest.raises(ConfigError, match="not a regular file"):
        RunDirectory(tmp_path).load_policy(learners())


def test_an_export_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    config = override(Config(), {"agent": "sac", "sac.width": 8})
    parts = make_agent(config, Plane()), learners_of(config, Plane()), {"env": "Plane"}
    for name in ("policy.npz", "policy.onnx"):
        path = tmp_path / name
        before = export.write(path, *parts).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(DiskError, match=f"cannot write {path}: No space left on device"):
                export.write(path, *parts)
        assert path.read_bytes() == before
        path.unlink()
        assert not list(tmp_path.iterdir())
        os.mkfifo(path)
        with pytest.raises(ConfigError, match=f"{name} should be an ordinary file"):
            export.write(path, *parts)
        path.unlink()


def test_two_exports_to_one_file(tmp_path, monkeypatch):
    """The second begins and ends while the first one writes."""
    config = override(Config(), {"agent": "sac", "sac.width": 8})
    parts = make_agent(config, Plane()), learners_of(config, Plane()), {"env": "Plane"}
    path, fsync = tmp_path / "policy.npz", os.fsync

    def meanwhile(handle):
        monkeypatch.setattr(os, "fsync", fsync)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            export.write(path, *parts)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    export.write(path, *parts)
    assert Policy.load(path).facts["env"] == "Plane"
    assert [each.name for each in tmp_path.iterdir()] == ["policy.npz"]


def test_a_model_that_does_not_fit_leaves_what_was_there(tmp_path):
    config = override(Config(), {"agent": "sac", "sac.width": 8})
    policy = Policy.load(export.write(tmp_path / "policy.npz", make_agent(config, Plane()),
                                           learners_of(config, Plane()), {}))  # fmt: skip
    path = policy.to_onnx(tmp_path / "policy.onnx")
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            policy.to_onnx(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["policy.npz", "policy.onnx"]


# Mutations. Bytes: what loads all the same is what was written. Values: what loads is whole.


def mutated_bytes(rng, content, other):
    """Some bytes flipped; or cut off; or a stretch of another file put in."""
    content = bytearray(content)
    at = int(rng.integers(len(content)))
    match rng.integers(4):
        case 0:
            for place in rng.integers(len(content), size=rng.integers(1, 9)):
                content[place] ^= int(rng.integers(1, 256))
        case 1:
            del content[at:]
        case 2:
            start = int(rng.integers(len(other)))
            content[at : at + int(rng.integers(200))] = other[start : start + int(rng.integers(200))]
        case _:
            tail = content.rfind(b"PK\x01\x02")  # where the zip's directory is: most flips hit nothing else
            for place in rng.integers(content.find(b"PK\x01\x02"), max(tail, 1) + 40, size=2):
                content[min(place, len(content) - 1)] ^= 1 << int(rng.integers(8))
    return bytes(content)


VALUES = (0.0, -1.0, 1e-30, 1e30, np.nan, np.inf, -np.inf, 5e-324, LIMIT, 2 * LIMIT, 1e-3)
FACTS = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    2.5,
    1e400,
    10**400,
    "",
    "slope",
    "actor",
    [],
    [1, 2],
    {},
    "x" * 5000,
    "\x1b[2J",
)


def mutated_array(rng, array):
    """Another value, dtype or shape."""
    if np.asarray(array).dtype.kind not in "fiu" or not np.size(array):  # it has been changed enough
        return array
    match rng.integers(6):
        case 0:
            array = np.array(array, float)
            array.flat[rng.integers(array.size)] = rng.choice(VALUES)
        case 1:
            array = np.full(np.shape(array), rng.choice(VALUES)).astype(rng.choice(["f4", "f8"]))
        case 2:
            array = np.asarray(array, rng.choice(["f2", "f4", "f8", ">f8", "i4", "u1", "?", "c8", "S4"]))
        case 3:
            array = np.asarray(array)[..., :-1] if np.ndim(array) else np.ones(2)
        case 4:
            array = np.swapaxes(array, -1, -2) if np.ndim(array) > 1 else np.zeros((0, 3))
        case _:
            array = np.asarray(array) * 10.0 ** rng.integers(-40, 40)
    return array


def mutated_parts(rng, facts, arrays):
    """A policy that is a valid file, with some of what it says or holds changed, dropped, doubled or renamed."""
    facts, arrays = dict(facts), dict(arrays)
    with np.errstate(all="ignore"):
        for _ in range(rng.integers(1, 4)):
            name, fact = str(rng.choice(sorted(arrays))), str(rng.choice(sorted(facts)))
            match rng.integers(8):
                case 0 | 1 | 2 | 3:
                    arrays[name] = mutated_array(rng, arrays[name])
                case 4:
                    facts[fact] = FACTS[rng.integers(len(FACTS))]
                case 5:
                    del facts[fact]
                case 6:
                    arrays[str(rng.choice([*arrays, "x", "../x", "header", name + "0"]))] = arrays.pop(name)
                case _:
                    del arrays[name]
            if not facts or len(arrays) < 2:
                break
    return facts, arrays


def refused_or(kind, path, load):
    """What was loaded; None if it was refused in a sentence of that kind that names the file."""
    try:
        return load()
    except ValueError as error:
        message = str(error) if type(error) is kind else repr(error)
    assert str(path) in message
    assert "\n" not in message
    return None


def attack(number, tmp_path):
    """One mutated policy of either kind; whether it loaded."""
    rng, path = np.random.default_rng(number), tmp_path / "policy.npz"
    kind = KINDS[number % len(KINDS)]
    facts, arrays = made(kind)
    if number % 2:
        other = packed(*made(KINDS[(number + 1) % len(KINDS)]))
        path.write_bytes(mutated_bytes(rng, packed(facts, arrays), other))
    else:
        changed, held = mutated_parts(rng, facts, arrays)
        text = json.dumps(changed).encode()
        try:
            np.savez(path, **held, **({} if "header" in held else {"header": np.frombuffer(text, np.uint8)}))
        except ValueError:  # a name that no file can have
            return False
    policy = refused_or(ValueError, path, lambda: Policy.load(path))
    if policy is None:
        return False
    assert is_whole(policy), number
    if number % 2:
        assert policy.facts == facts, number
        assert all(np.array_equal(array, arrays[name]) for name, array in read_arrays(path).items() if name != "header")
    return True


def attack_run(number, tmp_path):
    """The same for the policy of a run."""
    rng, path = np.random.default_rng(number), tmp_path / "policy.npz"
    directory = stored(tmp_path)
    if number % 2:
        path.write_bytes(mutated_bytes(rng, path.read_bytes(), packed(*made("actor"))))
    else:
        _, held = mutated_parts(rng, {"a": 1, "b": 2}, read_arrays(path))
        np.savez(path, **held)
    loaded = refused_or(ConfigError, tmp_path, lambda: directory.load_policy(learners()))
    if loaded is None:
        return False
    for name, array in learners().items():
        assert np.isfinite(loaded[name]).all(), number
        assert loaded[name].shape == array.shape, number
        assert loaded[name].dtype == array.dtype, number
        assert not number % 2 or np.array_equal(loaded[name], array), number
    return True


@pytest.mark.parametrize("first", [pytest.param(n, marks=[pytest.mark.slow] * (n > 0)) for n in range(0, 1000, 100)])
def test_mutated_policies_are_refused_or_whole(tmp_path, first):
    with np.errstate(all="raise", under="ignore"):  # a warning is a stack trace to those who ask for it
        loaded = [attack(number, tmp_path) for number in range(first, first + 100)]
        of_runs = [attack_run(number, tmp_path) for number in range(first, first + 100)]
    assert 0 < sum(loaded) < 60  # the attacks are neither all too crude nor all in vain
    assert 0 < sum(of_runs) < 60


def test_a_learned_noise_is_finite_whatever_the_deviations_are(tmp_path):
    """The size of the state is in units of its mean squares, which a crafted file may set to nothing."""
    facts, arrays = made("slope, learned noise")
    for tiny in (1e-200, 1e-30):
        arrays["statistics.deviation"] = np.full((2, OBSERVED), tiny)
        arrays["statistics.mean"] = np.zeros((2, OBSERVED))
        (tmp_path / "tiny.npz").write_bytes(packed(facts, arrays))
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            policy = Policy.load(tmp_path / "tiny.npz")
            policy(np.ones(OBSERVED))
        assert np.isfinite(policy(np.ones(OBSERVED))).all()
