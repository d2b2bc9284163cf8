"""Rules for importing code by name: only what the user, not a received file, asks for.

`gymnasium:MODULE:NAME` makes Gymnasium import MODULE, which executes it. Such a name is used only
after the module has been imported, either by the user's program or by `import_module_of`. The
latter is called if the user gave the name on the command line, declared a file trusted, or uses a
directory that the same user's command created. Of modules that happen to be imported, only
environment classes are used: a received file must not name any function to be called.
"""

import hashlib
import importlib.util
import json
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb

from moca.config import ConfigError, full_name
from moca.names import GYMNASIUM

_IMPORTING = (__file__, importlib.__file__)
_trusted: set[str] = set()  # names that the user asked for
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # for child processes, which must not import from the current directory


def module_of(name: str) -> str | None:
    """Returns the module that Gymnasium imports for an environment's name, or None."""
    module, colon, _ = name.removeprefix(GYMNASIUM).rpartition(":")
    return module if colon and name.startswith(GYMNASIUM) else None


def refuse_untrusted(name: str) -> None:
    """Raises if that environment would import a module, or call what is no environment class."""
    module = module_of(name)
    if module is None:
        return
    if module not in sys.modules:
        raise ConfigError(
            f"env.name = {name!r} executes the module {module!r}, which is not part of moca, Playground or "
            "Gymnasium: if you trust it, pass --trust (from Python, import it first, or pass trust=True)"
        )
    held = vars(sys.modules[module]).get(name.rpartition(":")[2])
    is_class = isinstance(held, type) and hasattr(held, "reset") and hasattr(held, "step")
    if held is not None and not is_class and name not in _trusted:
        raise ConfigError(
            f"env.name = {name!r} calls a function: if you trust it, pass --trust (from Python, trust=True)"
        )


def import_module_of(name: str) -> None:
    """Imports the module in the name, because the user asked for it."""
    module = module_of(full_name(name))
    if module is not None:
        try:
            importlib.import_module(module)
            _trusted.add(full_name(name))
        except Exception as error:  # a user's module may raise anything
            raise ConfigError(
                f"env.name = {name!r}: cannot import {module!r}, {_why(error, full_name(name))}"
            ) from None


def _why(error: Exception, name: str) -> str:
    """Returns why the module in the name cannot be imported, and what to do if it is not found."""
    module, said = module_of(name) or "", f"{type(error).__name__}: {error}"
    if not isinstance(error, ModuleNotFoundError) or not f"{module}.".startswith(f"{error.name}."):
        return said + _line_of(error)  # found, but broken
    if (stem := module.removesuffix(".py")) != module:
        return f"{said}. Name the module without .py: {stem}:{name.rpartition(':')[2]}"
    return f"{said}. The module must be installed or on PYTHONPATH; for a module in this folder: PYTHONPATH=. moca …"


def _line_of(error: Exception) -> str:
    """Returns the place where a module raised the exception, unless it says so itself."""
    frames = [] if isinstance(error, SyntaxError) else extract_tb(error.__traceback__)
    imported = [each for each in frames if not each.filename.startswith("<") and each.filename not in _IMPORTING]
    return f" (line {imported[-1].lineno} of {Path(imported[-1].filename).name})" if imported else ""


def resuming(path: Path, name: str) -> str:
    """Returns the command that resumes the run in a directory, in the environment of that name."""
    return " ".join([*search_path(name), "moca train --resume", shlex.quote(str(path))])


def search_path(name: str) -> list[str]:
    """Returns `PYTHONPATH=…` if a command needs it to find the environment's module, else nothing.

    The module is not imported.
    """
    top, found = (module_of(full_name(name)) or "").partition(".")[0], None
    with suppress(ValueError):  # there is no such name, or it was made by hand
        found = importlib.util.find_spec(top)
    origins = [found.origin, *(found.submodule_search_locations or ())] if found else []  # a folder has no file
    places = [Path(origin).resolve() for origin in origins if origin]
    entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    needed = [entry for entry in entries if any(place.is_relative_to(Path(entry).resolve()) for place in places)]
    return [f"PYTHONPATH={shlex.quote(entry)}" for entry in needed][:1]


def import_trusted(directory: Path, name: str, trust: bool) -> None:
    """Imports the module in the name, if the user trusts the directory or created it."""
    if trust or remembered(directory, name):
        import_module_of(name)


def remember(directory: Path, name: str) -> None:
    """Records that this user created that directory with that environment."""
    if module_of(name) is None or remembered(directory, name):
        return
    with suppress(OSError, RuntimeError):  # without a home directory, --trust is always needed
        record = _record()
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.touch(mode=0o600)
        with record.open("a") as file:
            file.write(_entry(directory, name) + "\n")


def remembered(directory: Path, name: str) -> bool:
    """Returns True if `remember` recorded this.

    Files in the directory itself cannot influence it.
    """
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
