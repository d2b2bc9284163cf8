#!/usr/bin/env bash
# Everything in results/ that is about the preset raw, on one GPU: stops after so many seconds, and goes on when it is run again.
#   bash results/raw.sh SECONDS OUT
# Several programs share the GPU best under CUDA's multi-process service (nvidia-cuda-mps-control -d).
set -u
limit=$1 out=$2 python=${PYTHON:-python3}
end=$(($(date +%s) + limit))
left() { echo $((end - $(date +%s))); }
study() { # NAME PARALLEL [OPTIONS]: a study, with what is finished of it copied to OUT
  local name=$1 parallel=$2 && shift 2
  [ "$(left)" -gt 60 ] || return 0
  timeout -s TERM "$(left)" "$python" -m moca study "$name" --parallel "$parallel" --checkpoint-every 3600 "$@" > "studies-$name.log" 2>&1
  echo "$name: exit $? with $(left) s left"
}
searches() { [ "$(left)" -gt 60 ] && OUT=$out timeout "$(left)" "$python" results/searches/run.py "$1" > "searches-$1.log" 2>&1; }
maps() { [ "$(left)" -gt 60 ] && [ ! -e "$out/maps-$1.npz" ] && OUT=$out timeout "$(left)" "$python" results/mechanism/run.py "$1"; }
mkdir -p "$out"
maps moca & maps moca-ce &
study raw-cartpole 8 & study raw-pendulum 8 & wait
study raw-alike 3 & searches rates & study process 8 --presets raw & wait
study process 8 & wait
