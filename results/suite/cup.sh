#!/usr/bin/env bash
# BallInCup by agents that differ in the next state that they take for their targets: cup.json, two seeds each.
#     bash results/suite/cup.sh OUT
# Exploratory: no rule was written before. The file's run with outcomes is of a first version, which took λ from the
# first twin alone.
set -euo pipefail
cup() {
  moca train --env BallInCup --set env.physics=mujoco --preset told --steps 50000 --seeds 2 --set train.eval_every=5 \
    --device cpu --out "$OUT/$1" "${@:2}"
}
OUT=$1
cup moca
cup moca-ce --agent moca-ce
cup bnaf --agent bnaf
cup sac --agent sac --set sac.width=64
cup no-filter --set belief.filter=false
cup slow --set critic.lr=3e-4 --set critic.lr_end=3e-4 --set critic.vertex_lr=3e-4 --set critic.vertex_lr_end=3e-4 \
  --set value.lr=1e-3 --set value.basis_lr=1e-3
cup wide-model --set dynamics.width=256
cup outcomes --set belief.outcomes=true
