"""Writes constraints.txt: the newest versions that install together, for each Python given.

    python tools/lock.py python3.11 python3.12

Each interpreter resolves the project with all its extras in a separate virtual environment. A
package whose version differs between them gets an environment marker. Only names and versions are
recorded.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = "dev"


def resolve(python: str) -> tuple[str, dict[str, str]]:
    """Returns the minor version of an interpreter, and the versions it installs."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    minor = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip = f"{folder}/bin/pip"
        subprocess.run([pip, "install", "--quiet", f"{ROOT}[{EXTRAS}]"], check=True)
        frozen = subprocess.run([pip, "freeze"], check=True, capture_output=True, text=True).stdout
    pins = dict(line.split("==") for line in frozen.splitlines() if "==" in line)
    return minor, {name.lower().replace("_", "-"): version for name, version in pins.items() if name != "moca-rl"}


def main(pythons: list[str]) -> None:
    resolved = dict(sorted(map(resolve, pythons), key=lambda item: tuple(map(int, item[0].split(".")))))
    minors = list(resolved)
    lines = ["# Versions that were tested together; `python tools/lock.py` writes this file."]
    for name in sorted({name for pins in resolved.values() for name in pins}):
        versions = {minor: pins.get(name) for minor, pins in resolved.items()}
        if len(set(versions.values())) == 1:
            lines.append(f"{name}=={versions[minors[0]]}")
            continue
        for i, minor in enumerate(minors):
            if versions[minor] is not None:
                # The newest Python given represents all later ones.
                sign = ">=" if i == len(minors) - 1 else "=="
                lines.append(f'{name}=={versions[minor]}; python_version {sign} "{minor}"')
    (ROOT / "constraints.txt").write_text("\n".join(lines) + "\n")
    print(ROOT / "constraints.txt")


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])
