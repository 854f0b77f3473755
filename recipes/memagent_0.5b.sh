#!/usr/bin/env bash
# MemAgent's smallest: 0.5B on one GPU, shorter texts, to see everything work before a node is booked.
#
#   bash recipes/memagent_0.5b.sh
#
# Before: as in memagent_7b.sh. (`recollect train hotpotqa` without --engine verl trains the same on one GPU, faster: siblings share
# their chunks there. This is for trying out verl.)
# A good run: (expected, not measured) about a quarter of short folds are right at first, and `reward/mean` has doubled by step 100. A
# reward that stays at 0 for 20 steps has no group to learn from: shorten the texts (--tasks.documents 20) or warm the format up first.
# Cost (estimated by the rates of benchmarks/scale.py, not measured): 40 s a step on an H200, 2 h for 200 steps; 24 GB of memory are enough.
set -euo pipefail

exec recollect train hotpotqa --engine verl --name memagent-0.5b \
    --model.path "${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" --tasks.folder "${DATA:-data/hotpotqa}" --tasks.documents 50 \
    --agent.chunk-size 2000 --agent.max-memory-tokens 512 --agent.max-answer-tokens 256 \
    --rollout.tasks 16 --rollout.n 16 --updates-per-step 4 --optim.warmup-steps 40 \
    --val.tasks 64 --steps 200 --test-freq 10 --save-freq 20 \
    "$@" -- \
    trainer.nnodes=1 trainer.n_gpus_per_node=1 actor_rollout_ref.rollout.gpu_memory_utilization=0.4
