#!/usr/bin/env bash
# What results/ holds of the preset raw, on one GPU. Stops after so many seconds; run again, it goes on.
#   bash results/raw.sh SECONDS OUT
# Several programs share a GPU best under CUDA's multi-process service (nvidia-cuda-mps-control -d).
set -u
limit=$1 out=$2 python=${PYTHON:-python3}
end=$(($(date +%s) + limit))
export XLA_PYTHON_CLIENT_PREALLOCATE=false OUT=$out
mkdir -p "$out" logs
left() { echo $((end - $(date +%s))); }
told() { echo "$1: exit $2, $(left) s left"; }
study() { # NAME PARALLEL
  [ "$(left)" -gt 60 ] || return
  timeout -s TERM "$(left)" "$python" -m moca study "$1" --parallel "$2" --checkpoint-every 3600 >> "logs/$1" 2>&1
  told "$1" $?
  (cd studies && tar cf "$out/$1.tar" "$1"/{results.parquet,origin.json,study.json} $(ls "$1"/landscape-*.npz 2> /dev/null))
}
search() {
  [ "$(left)" -gt 60 ] && ! [ -e "$out/$1-0.parquet" ] || return 0
  timeout "$(left)" "$python" results/searches/run.py "$1" >> "logs/$1" 2>&1
  told "$1" $?
}
maps() {
  [ "$(left)" -gt 60 ] && ! [ -e "$out/maps-$1.npz" ] || return 0
  timeout "$(left)" "$python" results/mechanism/run.py "$1" >> "logs/maps-$1" 2>&1
  told "maps $1" $?
}
maps moca & maps moca-ce & study raw-cartpole 5 & study raw-pendulum 5 & wait
study raw-alike 3 & search rates & wait
study process 8
