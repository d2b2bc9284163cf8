"""Rules for importing code by name: what the user asked for, not what a file from elsewhere asks for.

`gymnasium:MODULE:NAME` has Gymnasium import MODULE, which runs it. Such a name is used only once the module has been
imported, by the user's own program or by `import_module_of`, which is called where the user gave the name on the
command line, said that a file can be trusted, or uses a directory that a command of the same user made.
"""

import hashlib
import importlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from moca.config import ConfigError, full_name
from moca.names import GYMNASIUM

SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # the environment of processes that shall not import from the current directory


def module_of(name: str) -> str | None:
    """The module that an environment's name has Gymnasium import, if any."""
    module, colon, _ = name.removeprefix(GYMNASIUM).rpartition(":")
    return module if colon and name.startswith(GYMNASIUM) else None


def refuse_untrusted(name: str) -> None:
    """Raises if using that environment would import a module that was not imported yet."""
    module = module_of(name)
    if module is not None and module not in sys.modules:
        raise ConfigError(
            f"env.name = {name!r} runs the code of the module {module!r}, which is neither moca's, Playground's nor "
            "Gymnasium's: if you trust it, say so with --trust (from Python, import it first, or give trust=True)"
        )


def import_module_of(name: str) -> None:
    """Imports the module that the name asks for, because the user did, too."""
    module = module_of(full_name(name))
    if module is not None:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever that code raises
            raise ConfigError(
                f"env.name = {name!r}: cannot import {module!r}, {type(error).__name__}: {error}. A module must be "
                f"installed or lie on PYTHONPATH, as by PYTHONPATH=. moca train …, if it is here"
            ) from None


def import_trusted(directory: Path, name: str, trust: bool) -> None:
    """Imports the module that the name asks for, if the user said so or made that directory."""
    if trust or remembered(directory, name):
        import_module_of(name)


def remember(directory: Path, name: str) -> None:
    """Notes that this user made that directory with that environment, where its module is someone's own."""
    if module_of(name) is None or remembered(directory, name):
        return
    with suppress(OSError, RuntimeError):  # without a home, --trust is needed every time
        record = _record()
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.touch(mode=0o600)
        with record.open("a") as file:
            file.write(_entry(directory, name) + "\n")


def remembered(directory: Path, name: str) -> bool:
    """Returns True if `remember` noted this; nothing in the directory itself can make it so."""
    try:
        record = _record()
        for path in (record.parent, record):
            if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o022:
                return False
        return _entry(directory, name) in record.read_text().split()
    except (OSError, ValueError, RuntimeError):
        return False


def _record() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "moca" / "trusted"


def _entry(directory: Path, name: str) -> str:
    return hashlib.sha256(json.dumps([str(Path(directory).resolve()), name]).encode()).hexdigest()
