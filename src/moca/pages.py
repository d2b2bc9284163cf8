"""Parts shared by all HTML pages: templates, colours in both schemes, security policy.

A page is one file that opens offline. It contains its style, script and data, and its security
policy allows nothing else. Content from files is inserted as text, never as markup.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from moca.looks import COLOURS

Assets = Sequence[tuple[str, str]]  # packages and names of templates
PAPER = {"light": "#ffffff", "dark": "#16191d"}  # background colours
CONTRAST = {"light": 3.0, "dark": 4.5}  # smallest contrast of a line with the background; WCAG 2.2, 1.4.11 asks for 3


def templates(*packages: str) -> jinja2.Environment:
    """Returns the template environment of these packages; all values are escaped, except markup."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in packages]),
        autoescape=True,
        finalize=_escaped,
        keep_trailing_newline=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def asset(package: str, name: str) -> str:
    """Returns a style sheet or script from the templates of a package."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


def policy(script: str, style: str) -> str:
    """Returns the security policy of a page: its own script, style and embedded videos only."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; media-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def own(style: Assets, script: Assets) -> dict[str, str]:
    """Returns the style, the script and the security policy of a page, for its template."""
    sheet, code = rules() + "".join(asset(*each) for each in style), "".join(asset(*each) for each in script)
    return {"policy": policy(code, sheet), "style": Markup(sheet), "script": Markup(code)}


def embedded(data: Any) -> Markup:
    """Returns JSON that can neither end the enclosing script element nor start a comment in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def rules() -> str:
    """Returns style sheet rules for the background and the agents' colours in both schemes."""

    def scheme(name: str) -> str:
        inks = "".join(f".ink-{ink}{{color:{legible(colour, name)}}}" for ink, colour in COLOURS.items())
        return f":root{{--paper:{PAPER[name]}}}{inks}"

    return f"{scheme('light')}\n@media screen and (prefers-color-scheme: dark){{{scheme('dark')}}}\n"


def legible(colour: str, scheme: str) -> str:
    """Darkens or lightens a colour until it contrasts with the background of a scheme."""
    own, end = _channels(colour), np.full(3, float(scheme == "dark"))
    mixes = ((1 - share) * own + share * end for share in np.linspace(0, 1, 101))
    found = ("#" + "".join(f"{round(255 * channel):02x}" for channel in mix) for mix in mixes)
    return next(mix for mix in found if contrast(mix, PAPER[scheme]) >= CONTRAST[scheme])


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours as defined by WCAG, 1 to 21."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    channels = [_channels(colour) for colour in (one, other)]
    linear = [np.where(each <= 0.04045, each / 12.92, ((each + 0.055) / 1.055) ** 2.4) for each in channels]
    low, high = sorted(float(each @ weights) for each in linear)
    return (high + 0.05) / (low + 0.05)


def _channels(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def _escaped(value: Any) -> Any:
    """Returns markup unchanged, and anything else escaped, quotes included."""
    return value if hasattr(value, "__html__") else Markup(html.escape(str(value)))


def _hash(content: str) -> str:
    """Returns the hash of a script or style for the security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
