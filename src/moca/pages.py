"""What all pages share: templates, colours in both schemes, and the means to stand alone.

A page is one file that opens offline: its style, its script and its data are in it, and its security policy allows
those and nothing else. What comes from files is text, never markup.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from moca.looks import COLOURS

PAPER = {"light": "#ffffff", "dark": "#16191d"}  # what the lines are drawn on
CONTRAST = {"light": 3.0, "dark": 4.5}  # of a line with that, at least; 3 is what WCAG 2.2, 1.4.11 asks for


def templates(*packages: str) -> jinja2.Environment:
    """The templates of these packages; all that they are given is escaped, unless it is markup."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in packages]),
        autoescape=True,
        finalize=_escaped,
        keep_trailing_newline=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def asset(package: str, name: str) -> str:
    """A style sheet or script among the templates of a package."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


def policy(script: str, style: str) -> str:
    """The security policy of a page: its own script and style, films that are in it, and nothing else."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; media-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> Markup:
    """JSON that cannot end the script element it stands in, nor begin a comment there."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def rules() -> str:
    """Style sheet rules for the background and the agents' colours in both schemes."""

    def scheme(name: str) -> str:
        inks = "".join(f".ink-{ink}{{color:{legible(colour, name)}}}" for ink, colour in COLOURS.items())
        return f":root{{--paper:{PAPER[name]}}}{inks}"

    return f"{scheme('light')}\n@media screen and (prefers-color-scheme: dark){{{scheme('dark')}}}\n"


def legible(colour: str, scheme: str) -> str:
    """The colour, made as much darker or lighter as it takes to stand out from the background of a scheme."""
    own, end = _channels(colour), np.full(3, float(scheme == "dark"))
    mixes = ((1 - share) * own + share * end for share in np.linspace(0, 1, 101))
    found = ("#" + "".join(f"{round(255 * channel):02x}" for channel in mix) for mix in mixes)
    return next(mix for mix in found if contrast(mix, PAPER[scheme]) >= CONTRAST[scheme])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG defines it, 1 to 21."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    channels = [_channels(colour) for colour in (one, other)]
    linear = [np.where(each <= 0.04045, each / 12.92, ((each + 0.055) / 1.055) ** 2.4) for each in channels]
    low, high = sorted(float(each @ weights) for each in linear)
    return (high + 0.05) / (low + 0.05)


def _channels(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def _escaped(value: Any) -> Any:
    """Markup as it is, all else escaped, quotes as the standard library does it."""
    return value if hasattr(value, "__html__") else Markup(html.escape(str(value)))


def _hash(content: str) -> str:
    """The hash by which a page's security policy names its own script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
