#!/usr/bin/env bash
# Benchmarks MoCA and its peers: one JSON line per measurement on stdout, progress on stderr.
#
#   bash benchmarks/run.sh [ROUNDS] [PEERS]     for example: bash benchmarks/run.sh 3 "sbx sb3 brax"
#
# Each library has a virtual environment of its own, benchmarks/.venv-NAME, which is made when it is missing.
set -euo pipefail
cd "$(dirname "$0")"
rounds=${1:-3}
peers=${2:-sbx sb3 brax}
python=${PYTHON:-python3.11}
export JAX_PLATFORMS=cpu
export JAX_COMPILATION_CACHE_DIR=$PWD/.cache # compiling is never timed; this only saves waiting

constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
grep -v '^mpmath' ../constraints.txt >"$constraints" # torch wants an older one than our tests do

install() { # NAME PACKAGE...
    local venv=.venv-$1
    shift
    [ -e "$venv/installed" ] && return
    echo "Installing $* into $venv" >&2
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -c "$constraints" "$@" >&2
    touch "$venv/installed"
}

measure() { # NAME SCRIPT ARGUMENT...
    local name=$1
    shift
    echo "$name: $*" >&2
    ".venv-$name/bin/python" "$@" || echo "{\"library\": \"$name\", \"failed\": \"$*\"}"
}

wanted() { # NAME
    [[ " $peers " == *" $1 "* ]]
}

install moca -e ..
for peer in $peers; do
    case $peer in
    sbx) install sbx sbx-rl==0.28.0 stable-baselines3==2.9.2 torch==2.13.0 playground==0.2.0 ;;
    sb3) install sb3 stable-baselines3==2.9.2 torch==2.13.0 playground==0.2.0 ;;
    brax) install brax brax==0.14.2 playground==0.2.0 ;;
    esac
done

# Ours and SBX take turns, so that a busy machine slows both alike.
wanted sbx && measure sbx gymnasium_cartpole.py
for _ in $(seq "$rounds"); do
    for width in 64 256; do
        measure moca ours.py bnaf "$width" 1
        wanted sbx && measure sbx sb.py sbx "$width"
        measure moca ours.py bnaf "$width" 10
        measure moca ours.py moca "$width" 1 evaluated
    done
done
for width in 64 256; do
    for agent in sac moca; do
        measure moca ours.py "$agent" "$width" 1
        measure moca ours.py "$agent" "$width" 10
    done
    wanted sb3 && measure sb3 sb.py sb3 "$width"
    wanted brax && measure brax brax_sac.py "$width"
done
exit 0
