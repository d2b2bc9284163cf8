#!/usr/bin/env bash
# The studies in results/, on one GPU. Stops after so many seconds; run again, it goes on.
#   bash results/raw.sh SECONDS OUT first      the studies of the paper's claims, value maps, rates
#   bash results/raw.sh SECONDS OUT second     SAC's search and studies, process noise, more seeds, ladder, completions
#   bash results/raw.sh SECONDS OUT third      an equal search for MoCA, MoCA-CE and BNAF; further settings for ρ
#   bash results/raw.sh SECONDS OUT fourth     every agent with a filter that learns the noise
# Several programs share a GPU best under CUDA's multi-process service (nvidia-cuda-mps-control -d).
set -u
limit=${1:?seconds} out=${2:?a folder} part=${3:?first to fourth} python=${PYTHON:-python3}
end=$(($(date +%s) + limit))
export XLA_PYTHON_CLIENT_PREALLOCATE=false OUT=$out
mkdir -p "$out" logs
left() { echo $((end - $(date +%s))); }
told() { echo "$1: exit $2, $(left) s left"; }
study() { # NAME PARALLEL [OPTION…]
  [ "$(left)" -gt 60 ] || return
  local name=$1 parallel=$2
  shift 2
  timeout -s TERM "$(left)" "$python" -m moca study "$name" --parallel "$parallel" --checkpoint-every 3600 "$@" >> "logs/$name" 2>&1
  told "$name" $?
  (cd studies && tar cf "$out/$name.tar" "$name"/{results.parquet,origin.json,study.json} $(ls "$name"/landscape-*.npz 2> /dev/null))
}
search() { # NAME PARALLEL
  [ "$(left)" -gt 60 ] && ! [ -e "$out/$1-done" ] || return 0
  timeout "$(left)" "$python" results/searches/run.py "$1" --parallel "$2" >> "logs/$1" 2>&1 && touch "$out/$1-done"
  told "$1" $?
}
maps() {
  [ "$(left)" -gt 60 ] && ! [ -e "$out/maps-$1.npz" ] || return 0
  timeout "$(left)" "$python" results/mechanism/run.py "$1" >> "logs/maps-$1" 2>&1
  told "maps $1" $?
}
sac() {
  search sac 5
  "$python" results/searches/run.py best-sac # what the preset raw has for SAC
  study raw-sac-cartpole 2 & study raw-sac-pendulum 2 & wait
}
others() {
  study process 5
  study raw-alike 3 & study raw-weak 4 & wait
  search ladder 8
}
completed() { # once half of the completions is done
  sleep $((limit / 2))
  search completed 6
}
equal() {
  search joint 6
  search best 6
}
case $part in
  first) maps moca & maps moca-ce & study raw-cartpole 5 & study raw-pendulum 5 & search rates 6 & wait ;;
  second) sac & others & search completions 10 & completed & wait ;;
  third) equal & study raw-between 4 & study told-between 4 & wait ;;
  fourth) study tuned-pendulum 7 & study tuned-cartpole 6 & wait ;;
esac
