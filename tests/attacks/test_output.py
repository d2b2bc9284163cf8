"""What is printed goes nowhere: to a full disk, to a reader that has left. It is one sentence, or none."""

import os
import subprocess
import sys

import pytest

import moca.cli


@pytest.fixture
def full():
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as file:
        yield file


def started(*command, stderr=subprocess.PIPE, **streams):
    environment = os.environ | {"PYTHONUNBUFFERED": ""}  # a buffer is written when the program ends
    return subprocess.run([sys.executable, *command], text=True, env=environment, stderr=stderr, **streams)


def test_output_to_a_full_disk_is_one_sentence(full):
    done = started("-m", "moca", "settings", stdout=full)
    assert done.stderr == "moca settings: cannot print: No space left on device\n"
    assert done.returncode == 74


def test_the_exit_code_is_right_though_nothing_can_be_said(full):
    assert started("-m", "moca", "settings", stdout=full, stderr=full).returncode == 74
    assert started("-m", "moca", "train", "--dry-run", "--seed=x", stdout=full, stderr=full).returncode == 2


def test_a_reader_that_has_left_is_no_fault():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody:
        done = started("-m", "moca", "settings", stdout=nobody)
    assert done.stderr == ""
    assert done.returncode == 74


NEXT = """
import os, sys
from moca.cli import main
sys.argv = ['moca', '--version']
try:
    main()
except SystemExit:
    sys.exit(os.open(os.devnull, os.O_RDONLY))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_fault(closed):
    """As a daemon may have them. The next file that is opened must not take the number of one of them."""
    for arguments, code in (("settings", 0), ("train --dry-run --seed=x", 2)):
        done = subprocess.run(f"{sys.executable} -m moca {arguments} {closed}", shell=True, capture_output=True)
        assert done.returncode == code, done
        assert b"Traceback" not in done.stdout + done.stderr
    done = subprocess.run(f'{sys.executable} -c "{NEXT}" {closed}', shell=True)
    assert done.returncode > 2


def test_characters_that_cannot_be_printed_are_escaped():
    for arguments in (["settings"], ["train", "--help"]):
        environment = os.environ | {"PYTHONIOENCODING": "ascii"}
        done = subprocess.run([sys.executable, "-m", "moca", *arguments], env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\u20" in done.stdout


def test_what_the_operating_system_refuses_is_one_sentence(monkeypatch, capfd):
    def refuse(arguments):
        raise PermissionError(13, "Permission denied", "/not/yours")

    monkeypatch.setattr("moca.runs.cli._evaluate", refuse)
    with pytest.raises(SystemExit) as stopped:
        moca.cli.main(["evaluate", "/not/yours"])
    assert stopped.value.code == 74
    assert capfd.readouterr().err == "moca evaluate: /not/yours: Permission denied\n"
