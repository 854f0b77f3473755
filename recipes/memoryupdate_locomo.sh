#!/usr/bin/env bash
# MemoryUpdate on LoCoMo: a curator with tools edits the memories of a conversation so that retrieval answers better afterwards. The
# reward is how much better (delta), less what the store grew beyond its budget; reading needs no model here (reward.reader evidence).
#
#   bash recipes/memoryupdate_locomo.sh            1 x 8 GPUs of 80 GB
#   NODES=4 bash recipes/memoryupdate_locomo.sh    4 x 8 GPUs, four times the batch
#
# Before: recollect data locomo --input locomo10.json --output data/locomo
# To let a served model answer and judge, as published: --reward.reader endpoint --reward.reader-url http://HOST:8000/v1
#   --reward.judge-url http://HOST:8000/v1 --reward.mode new+format
# A good run: (expected, not measured) below 5% of the tool calls fail by step 10 (`score/tools/failed` of `score/tools/calls`), then
# `reward/mean` is above 0 and rises, and `val/reward/mean` with it. Watch the growth: a reward that rises with `score/growth/tokens` at
# its budget copies the conversation instead of choosing from it. No curve was published for this system.
# Cost (estimated): 128 chats of up to 8K tokens a step: about a minute on 8 H200s, most of it sampling.
set -euo pipefail
NODES=${NODES:-1}

exec recollect train locomo --engine verl --name "memoryupdate-locomo-${NODES}x8" \
    --model.path "${MODEL:-Qwen/Qwen2.5-7B-Instruct}" --tasks.folder "${DATA:-data/locomo}" \
    --rollout.tasks $((16 * NODES)) --rollout.n 8 --updates-per-step 2 \
    --advantage grpo_std --optim.lr 1e-6 --optim.warmup-steps 20 --steps 200 --test-freq 10 --save-freq 20 \
    "$@" -- \
    trainer.nnodes=$NODES trainer.n_gpus_per_node=8 \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
