"""Every setting, given nasty values as text and as Python objects: refused in a sentence, or held as it was meant.

What "held" means is written here a second time and not taken from `moca.config`: a number must survive the trip to
float32 or int32 with its meaning, and a config the trip through JSON.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import math
import random
import re
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from moca import cli, presets
from moca import config as c
from moca.runs.options import given_options

NAMES = c.flatten(c.Config())
BASE = presets.build("tuned", "CartpoleBalance", {})
INT32 = 2**31 - 1
TINY, HUGE = 2.0**-126, 2.0**128  # float32's least normal number, which XLA tells from zero, and the end of its range
INFINITE = ("value.least", "value.most", "noise.scales")
ONE = ("train.gamma", "sac.tau", "sac.probability", "exploration.probability", "exploration.anneal")  # means something
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?inf", re.ASCII)


class HostileRepr:
    def __repr__(self):
        raise RuntimeError("no words")


class HostileFloat(float):
    def __float__(self):
        raise RuntimeError("no number")

    __repr__ = __str__ = __format__ = HostileRepr.__repr__


class HostileStr(str):
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = str.__hash__


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def cycle():
    value = [1.0]
    value.append(value)
    return value


TEXTS = [
    *("", " ", "0", "-0", "0.0", "-0.0", "1", "-1", "+1", "1.0", "1.5", "1e0", "0.5", ".5", "1.", "2", "1000", "1e3"),
    *("nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e400", "-1e400", "1e-400", "1e39", "-1e39", "3.5e38", "1e38"),
    *("3.4028235e38", "3.4028236e38", "1e-37", "1e-38", "1e-39", "1e-45", "1e-46", "1e-50", "1e-320", "1e30", "1e-30"),
    *("0.9999999", "0.99999999", "0.999999999999", "1.0000000001", "1.00000001", "1e15", "1e-15", "1e20", "1e-20"),
    *("1_000", "1__0", "٣", "３", "²", "½", "Ⅷ", "0x10", "0b1", "0o7", "1e5.5", "1,2", "1;2", "1 2", "--1", "1L", "1f"),
    *("1e", "e1", "true", "True", "false", "yes", "no", "on", "None", "null", "{}", "[]", "[1]", "[1,2]", "[[1],[2]]"),
    *("(1,)", "[1,", ",", "[,]", "[1,,2]", "[nan]", "[inf]", "[-inf]", "[inf,inf]", "[1e400]", "[1e-50]", "[1_0]"),
    *("[1,2,3,4,5]", "[1e-30,1,1,1,1]", "[1e30,1,1,1,1]", "[-1,-1,-1,-1,-1]", "[0,0,0,0,0]", "[1,2,3,4,inf]"),
    *("1" * 400, "9" * 5000, "1e" + "9" * 50, "0." + "0" * 400 + "1", "2147483647", "2147483648", "-2147483649"),
    *("4294967295", "4294967296", "9007199254740993", "9223372036854775807", "18446744073709551616", "1e9", "1e10"),
    *("a\0b", "\0", "a\nb", "\n", "\r", "\t1", "1\t", "\ud800", "\udcff", "\x1b[31m", "\u202e", "\ufeff1", "1\u00a0"),
    *("[bold]", "[/]", "[/bold]", "[link=x]", "..", "../..", "/", "~", "a" * 300, "%s", "{0}", "$HOME", "-", "--", "="),
    *("moca", "MOCA", "moca ", "sac", "own:", "own:../x", "own:" + "a" * 300, "gymnasium:", "gymnasium:.."),
    *("my_ns/Foo-v0", "gymnasium:my_ns/Foo-v0", "gymnasium:\0", "gymnasium:a\nb", "gymnasium:[/]", "gymnasium:../../x"),
    *("gymnasium:" + "a" * 300, "gymnasium:\ud800", "gymnasium:nowhere_:Foo-v0", "own:\0", "own:a/../../b", "own:[/]"),
]  # fmt: skip

VALUES = [
    *(-1, 0, 1, 2, 5, 1000, INT32, INT32 + 1, -INT32, 2**32, 2**53 + 1, 2**63, 2**64, 10**400, -(10**400), 10**18),
    *(True, False, None, ..., NotImplemented, int, lambda: 1, HostileRepr(), HostileFloat(0.5), HostileStr("moca")),
    *(0.0, -0.0, 0.5, 1.0, 1.5, 1e3, 1e-50, 1e-39, 1e-30, 1e30, 1e39, 1e308, -1e-50, 1 - 1e-12, 1 + 1e-12, 5e-324),
    *(math.nan, math.inf, -math.inf, complex(1, 0), Fraction(1, 3), Fraction(2), Fraction(10**400), Decimal("0.5")),
    *(Decimal("NaN"), Decimal("1e400"), np.float32(0.1), np.float64(0.5), np.float16(0.5), np.int64(3), np.uint8(2)),
    *(np.int64(2**62), np.float32("inf"), np.float64("nan"), np.bool_(True), np.array(3), np.array([1, 2])),
    *(np.array([[1.0]]), np.array([]), np.array(["a"]), np.array([None]), np.arange(5.0), np.longdouble(1)),
    *("0.5", "1", b"1", bytearray(b"1"), [], [1], [[1]], ["a"], ["1"], (), (1.0, 2.0), (True,), ("1", "2"), {1.0}, {}),
    *({"a": 1}, range(3), range(5), Path("x"), nested(100_000), cycle(), [1e400], [1e-50] * 5, [math.nan] * 5),
    *((1.0, 2.0, 3.0, 4.0, 5.0), (1e-30,) * 5, (1e30,) * 5, (math.inf,) * 5, (10**400,) * 5, (None,) * 5, [b"1"] * 5),
    *("1,2,3,4,5", [1] * 10_000, "a" * 10_000, "\ud800", "\0", "moca", "CartpoleBalance", "rbf", "diagonal", "own:x"),
]  # fmt: skip

ODD_NAMES = [
    *("", "..", "train", "train.", ".gamma", "train.gamma.x", "a.b.c", "__class__", "train.__doc__", "seed\0", "SEED"),
    *("train gamma", "env.name ", "\ud800", "[/]", "a" * 5000, "train.gama", "seed.", "env..name", 5, None, b"seed"),
]  # fmt: skip

PARSERS = cli._parser()[1]
# What stands after an option, so that a command with it ends before it has much to do.
AFTER = {
    "benchmark": ("nowhere",),
    "check": ("nowhere",),
    "demo": ("--nowhere",),
    "doctor": ("--nowhere",),
    "evaluate": ("nowhere",),
    "export": ("nowhere",),
    "figure": ("nowhere",),
    "inspect": ("nowhere",),
    "render": ("nowhere",),
    "report": ("nowhere",),
    "settings": ("critic",),
    "study": ("cartpole", "--dry-run"),
    "sweep": ("--dry-run", "--random=sac.tau=1e-3:1e-2"),
    "train": ("--dry-run",),
    "zoo": ("nowhere",),
}


def options(command):
    """All options of a command that take a value or could be given one."""
    return [action.option_strings[-1] for action in PARSERS[command]._actions if action.option_strings][1:]  # no --help


def setting_of(option):
    """The setting that an option of `train` is for, if it is for one."""
    with contextlib.suppress(SystemExit, c.ConfigError), contextlib.redirect_stderr(io.StringIO()):
        return next(iter(given_options(PARSERS["train"].parse_args([f"{option}=1"]))), None)


AXES = ("critic.lr", "train.gamma", "value.least", "noise.scales", "seed", "nothing")


def edges(name):
    """Numbers about the limits of a field, as float64 and as float32 have them."""
    bounds = [bound for bound in c.field_of(name).metadata["limits"].values() if isinstance(bound, int | float)]
    for bound in {0.0, 1.0, *map(float, bounds)}:
        yield from (bound, math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf), bound + 1, bound - 1)
        yield from (float(np.nextafter(np.float32(bound), np.float32(way))) for way in (-math.inf, math.inf))


def drawn(name, rng, count):
    """Random numbers of all sizes, and the default with letters exchanged."""
    letters = "0123456789.eE+-_,[]() \0n"
    for _ in range(count):
        yield f"{rng.choice('+-') if rng.random() < 0.2 else ''}{10 ** rng.uniform(-60, 60):.17g}"
        yield str(int(2 ** rng.uniform(0, 80)))
        text = list(str(NAMES[name]) or "0")
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = rng.choice(letters)
        yield "".join(text)


def cases():
    """(route, name of the setting or option, value), always the same ones in the same order.

    Every setting meets every Python value; of the slower routes each setting takes another part.
    """
    rng = random.Random(19)
    for number, name in enumerate(NAMES):
        texts = [*TEXTS, *map(repr, edges(name)), *drawn(name, rng, 8)]
        values = [*VALUES, *edges(name), *texts]
        yield from (("override", name, value) for value in values)
        yield from (("--set", name, text) for text in texts[number % 4 :: 4])
        yield from (("constructor", name, value) for value in values[number % 3 :: 3])
        yield from (("json", name, value) for value in values[number % 3 :: 3])
    for command in PARSERS:
        for number, option in enumerate(options(command)):
            yield from ((command, option, text) for text in TEXTS[number % 3 :: 3])
    for number, (option, axis) in enumerate(itertools.product(("--grid", "--random"), AXES)):
        texts = [*TEXTS[number % 4 :: 4], "1:2", "0:1e400", "1e-50:1", "0.5,0.5", "1e-3,1e-50"]
        yield from (("sweep", option, f"{axis}={text}") for text in texts)
    yield from (("override", name, value) for name in ODD_NAMES for value in (1, "1"))
    yield from (("--set", name, "1") for name in ODD_NAMES if isinstance(name, str))


def run(arguments):
    """Exit code, output and errors of a command; whatever it raises goes on."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace") for _ in range(2))
    code = 0
    measured = {"sensor.scales": (1.0,), "value.low": (-1.0,), "value.high": (1.0,), "value.lengthscales": (1.0,)}
    no_measuring = mock.patch("moca.envs.defaults.defaults", return_value=measured)  # which takes minutes
    no_tracing = mock.patch("moca.runs.starting.refuse_unfit")  # of networks, thousands of times
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_measuring, no_tracing:
        try:
            cli.main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    return code, *(stream.buffer.getvalue().decode() for stream in (_flushed(out), _flushed(err)))


def _flushed(stream):
    stream.flush()
    return stream


def number_of(given):
    """What a value or a text means as a number, or None."""
    if isinstance(given, str):
        number = float(given) if NUMBER.fullmatch(given.strip()) else None
        return None if number is not None and math.isinf(number) and "inf" not in given else number
    if isinstance(given, float):
        return float.__add__(given, 0.0)  # also of one that raises when asked
    given = given[()] if isinstance(given, np.ndarray) and given.ndim == 0 else given
    if isinstance(given, np.floating) or (isinstance(given, Fraction) and abs(given) < 10**300):
        return float(given)
    return given if isinstance(given, int | np.integer) and not isinstance(given, bool) else None


def meant(name, given, got):
    """Whether the value that was accepted is the one that was given."""
    if isinstance(got, bool):
        return str(given).strip().lower() in (("true", "yes", "1") if got else ("false", "no", "0"))
    if isinstance(got, str):
        short = name == "env.name" and "/" in given  # a name with a namespace is Gymnasium's
        return got in (given.strip(), f"gymnasium:{given.strip()}" if short else given.strip())
    if isinstance(got, tuple):
        parts = given.strip("[]() ").split(",") if isinstance(given, str) else list(given)
        parts = [part for part in parts if not (isinstance(part, str) and not part.strip())]
        numbers = [number_of(part) for part in parts]
        return numbers == list(got)
    return number_of(given) == got


def faults(config):
    """What the program could not hold of a config that was accepted."""
    for name, value in c.flatten(config).items():
        kind = type(NAMES[name])
        if type(value) is not kind:
            yield f"{name} is a {type(value).__name__}"
        elif kind is int or name == "sensor.observed":
            numbers = (value,) if kind is int else value
            if any(type(number) is not int or abs(number) > INT32 for number in numbers):
                yield f"{name} holds what no int32 can"
        elif kind in (float, tuple):
            for number in value if kind is tuple else (value,):
                yield from number_faults(name, number)
    train, env = config.train, config.env
    if (train.steps // env.action_repeat) * train.updates > INT32:
        yield "the number of updates is beyond int32"
    if config.seed + config.seeds - 1 > INT32:
        yield "a seed is beyond int32"
    f32 = np.float32
    value = config.value
    for low, high in [*zip(value.low, value.high, strict=True), (value.least, value.most)]:
        with np.errstate(over="ignore"):
            if not f32(low) < f32(high) or (
                math.isfinite(low) and math.isfinite(high) and not np.isfinite(f32(high) - f32(low))
            ):
                yield f"{low} and {high} are no range in float32"
    if not all(size <= 256 for size in (config.critic.depth, config.dynamics.depth, config.sac.depth)):
        yield "more layers than can be traced"
    text = c.to_json(config)
    if re.search(r"NaN|Infinity", text):
        yield "what it writes is no JSON"
    if c.from_json(text) != config:
        yield "JSON makes another config of it"
    if c.override(config, c.flatten(config)) != config or c.override(c.Config(), c.flatten(config)) != config:
        yield "its own settings make another config of it"
    if not re.fullmatch(r"[^/\0-\x1f]{1,200}", config.env.name.replace("/", "")) or ".." in config.env.name.split("/"):
        yield "a name that no directory can have"


def number_faults(name, number):
    if type(number) is not float:
        yield f"{name} holds a {type(number).__name__}"
    elif math.isinf(number):
        if name not in INFINITE:
            yield f"{name} is infinite"
    elif not abs(number) < HUGE * (1 - 2**-25) or (number and abs(number) < TINY):
        yield f"{name} = {number} is beyond float32"
    elif name in ONE and (np.float32(number) == 1) != (number == 1):
        yield f"{name} = {number} is 1 in float32"
    elif number and not TINY < number**2 < HUGE:
        yield f"{name} = {number} squared is beyond float32"
    if name == "train.gamma" and not np.float32(number) < 1:
        yield "gamma is 1"


def verdict(route, name, value):
    """Nothing; or "trace" or "accepted", and why."""
    try:
        if route in ("override", "constructor", "json"):
            config = accepted_by(route, name, value)
            given = value
        elif route == "--set":
            code, out, err = run(["train", "--env", "CartpoleBalance", "--dry-run", f"--set={name}={value}"])
            config, given = told(code, out, err, name), value
        elif route == "train":
            code, out, err = run(["train", f"{name}={value}", *AFTER["train"]])
            config, given, name = told(code, out, err, name), value, setting_of(name)
        else:
            code, out, err = run([route, f"{name}={value}", *AFTER[route]])
            sentence(code, err)
            points = re.findall(r"([\w.]+) = (\S+?)(?:,|\n|$)", out) if route == "sweep" and not code else []
            problems = {fault for point, number in points for fault in number_faults(point, float(number))}
            return ("accepted", "; ".join(problems)) if problems else None
    except c.ConfigError as error:
        return None if str(error) and len(str(error)) < 6000 else ("accepted", "no sentence")
    except Exception as error:
        return "trace", f"{type(error).__name__}: {str(error)[:80]}"
    if config is None:
        return None
    try:
        problems = list(faults(config))
        if name == "noise.sigma" and config.noise.sigmas:  # --sigma takes a list, too
            name = "noise.sigmas"
        if name is not None and not meant(name, given, c.flatten(config)[name]):
            problems.append(f"got {c.flatten(config)[name]!r:.60}")
    except Exception as error:
        problems = [f"then {type(error).__name__}: {str(error)[:80]}"]
    return ("accepted", "; ".join(problems)) if problems else None


def accepted_by(route, name, value):
    if route == "override":
        return c.override(BASE, {name: value})
    if route == "json":
        section, _, inner = name.rpartition(".")
        try:
            text = json.dumps({section: {inner: value}} if section else {inner: value})
        except (TypeError, ValueError, RecursionError):
            return None
        return c.override(BASE, c.settings_of(text, "a test")) if hasattr(c, "settings_of") else c.from_json(text)
    section, _, inner = name.rpartition(".")
    if section:
        return dataclasses.replace(
            BASE, **{section: dataclasses.replace(getattr(BASE, section), **{inner: value})}
        ).validated()
    return dataclasses.replace(BASE, **{inner: value}).validated()


def sentence(code, err):
    """Raises unless the command went well, or said in a line or two what was wrong."""
    if code not in (0, 2) or (code == 2 and not err.strip()) or "Traceback" in err:
        raise AssertionError(f"exit code {code}: {err[-200:]}")


def told(code, out, err, name):
    sentence(code, err)
    return c.from_json(out) if code == 0 else None


def count(chosen):
    found = [(case, answer) for case in chosen if (answer := verdict(*case))]
    return found, {kind: sum(answer[0] == kind for _, answer in found) for kind in ("trace", "accepted")}


def complain(found, number):
    lines = [f"{answer[0]}: {case[0]} {case[1]!s:.40} {_shown(case[2])}: {answer[1]}" for case, answer in found]
    return f"{len(found)} of {number}\n" + "\n".join(lines[:40])


def _shown(value):
    try:
        return f"{value!r:.60}"
    except Exception:
        return type(value).__name__


def test_every_option_is_tried():
    assert PARSERS.keys() == AFTER.keys()
    tried = {(route, name) for route, name, _ in cases()}
    for command, parser in PARSERS.items():
        known = {word for action in parser._actions for word in action.option_strings[-1:]} - {"--help"}
        assert known == {name for route, name in tried if route == command}
    assert {("train", "--history"), ("check", "--seed"), ("train", "--from")} <= tried
    assert setting_of("--history") == "sensor.history"
    assert setting_of("--keep") is None


def test_a_sample():
    chosen = list(cases())[::60]
    found, _ = count(chosen)
    assert not found, complain(found, len(chosen))


@pytest.mark.slow
def test_all():
    chosen = list(cases())
    assert len(chosen) >= 5000
    found, _ = count(chosen)
    assert not found, complain(found, len(chosen))


if __name__ == "__main__":
    everything = list(cases())
    found, totals = count(everything)
    print(len(everything), totals, file=sys.stderr)
    for case, answer in found:
        print(f"{answer[0]}: {case[0]} {case[1]!s:.40} {_shown(case[2])}: {answer[1]}")
