#!/usr/bin/env bash
# Two-stage training, stage 2: answering learns to use the memory of stage 1, which stays as it is behind a server.
#
#   vllm serve runs/two-stage-1-memory-1x8/model --port 8001 --max-model-len 16384
#   FIXED=http://HOST:8001/v1 bash recipes/two_stage_2_qa.sh                    # NODES=4 for 4 x 8 GPUs
#
# A good run: (expected, not measured) starts where stage 1 ended (the same pair, before any update) and rises from there. A higher
# rate is advised than in stage 1; the published scripts kept 1e-6. Cost (estimated): as stage 1.
set -euo pipefail
NODES=${NODES:-1}

exec recollect train bank --engine verl --name "two-stage-2-qa-${NODES}x8" \
    --model.path "${MODEL:-Qwen/Qwen3-4B-Instruct-2507}" \
    --rollout.tasks 32 --rollout.n 16 --updates-per-step 4 --agent.limits.max-context-tokens 16384 \
    --advantage grpo_std --loss.kl-coef 0.001 --optim.lr 5e-6 --steps 100 --test-freq 10 --save-freq 20 \
    "$@" -- \
    +actor_rollout_ref.rollout.agent_name_override=tool_mem_agent_twostage \
    +actor_rollout_ref.rollout.training_stage=qa \
    +actor_rollout_ref.rollout.fixed_model_api="${FIXED:-http://localhost:8001/v1}" \
    trainer.nnodes=$NODES trainer.n_gpus_per_node=8 \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 actor_rollout_ref.rollout.gpu_memory_utilization=0.7
