"""Retakes the pictures of docs/inspect.md: the page about an episode, on a desktop and on a phone.

    PYTHONPATH=. python tools/inspect_pictures.py FOLDER

Runs of MoCA and MoCA-CE that are not yet in FOLDER are trained there first, as docs/inspect.md
says, for a few minutes each. Needs Chromium.
"""

import base64
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.browser import Chromium, Page, find

import moca

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TRAIN = "--preset raw --env PendulumSwingup --sigma 0.05 --steps 60000 --seed 2000"
EPISODE, STEP = 2, 235
DESKTOP, PHONE = (1160, 1400), (390, 912)


def main(folder: Path) -> None:
    """Writes both pictures."""
    for agent in ("moca", "moca-ce"):
        if not (folder / agent / "policy.npz").exists():
            out = ["--agent", agent, "--out", str(folder / agent)]
            subprocess.run([sys.executable, "-m", "moca", "train", *TRAIN.split(), *out], check=True)
    ours, theirs = (moca.load(folder / agent) for agent in ("moca", "moca-ce"))
    with tempfile.TemporaryDirectory() as profile:
        path = ours.inspect(EPISODE, beside=theirs).save(Path(profile) / "inspect.html")
        browser = Chromium(find(), profile)
        try:
            desktop = Page(browser, path, *DESKTOP)
            desktop(f"go({STEP})")
            below = desktop("document.getElementById('stakes').getBoundingClientRect().top") - 40
            clip = {"x": 0, "y": 0, "width": DESKTOP[0], "height": below, "scale": 1}
            taken(desktop, "inspect.png", clip=clip, captureBeyondViewport=True)
            phone = Page(browser, path, *PHONE, prefers_color_scheme="dark")
            phone(f"form.elements.window.value = '50'; form.dispatchEvent(new Event('change')); go({STEP})")
            phone("document.getElementById('ahead').scrollIntoView()")
            taken(phone, "inspect-phone.png")
        finally:
            browser.close()


def taken(page: Page, name: str, **part: Any) -> None:
    """Writes a picture of a page, or of a part of it, once its videos show the step."""
    page("new Promise((done) => setTimeout(done, 1500))")
    (IMAGES / name).write_bytes(base64.b64decode(page.call("Page.captureScreenshot", **part)["data"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
