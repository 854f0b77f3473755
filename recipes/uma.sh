#!/usr/bin/env bash
# UMA end to end: one 4B model keeps a bank of notes and a core memory while it reads, then answers from them; both roles learn.
# Rewards: the answers, half a point for a box, half for tool calls that succeed; memories and each question are compared apart.
#
#   bash recipes/uma.sh            1 x 8 GPUs of 80 GB: 32 tasks a step, as published
#   NODES=4 bash recipes/uma.sh    4 x 8 GPUs: the same batch, four times as fast at best
#
# Before: nothing for the made-up ledgers of the preset; recollect data ledger --output data/ledger and the preset ledger_qa for fixed sets.
# A good run: (expected, not measured) `score/tools/success` (share of calls that succeed) above 0.9 by step 20, since it pays at once;
# then the answers. Sessions late in a ledger stay hard longest: compare categories in the validation. No curve was published.
# Cost (estimated): 18 chats to an episode. If they have 8,000 tokens on average, a step trains on 74M tokens: about 15 minutes on 8 H200s.
set -euo pipefail
NODES=${NODES:-1}

exec recollect train bank --engine verl --name "uma-${NODES}x8" \
    --model.path "${MODEL:-Qwen/Qwen3-4B-Instruct-2507}" \
    --rollout.tasks 32 --rollout.n 16 --updates-per-step 4 \
    --agent.limits.max-context-tokens 16384 \
    --advantage grpo_std --loss.kl-coef 0.001 --optim.lr 1e-6 --steps 200 --test-freq 10 --save-freq 20 \
    "$@" -- \
    trainer.nnodes=$NODES trainer.n_gpus_per_node=8 \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.7
