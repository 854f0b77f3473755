#!/usr/bin/env bash
# Two-stage training, stage 1: the memory learns what a fixed answerer can use. Keys and values are those of the published scripts.
#
#   vllm serve Qwen/Qwen3-4B-Instruct-2507 --port 8000 --max-model-len 16384    # on another machine, or on GPUs kept out of Ray
#   FIXED=http://HOST:8000/v1 bash recipes/two_stage_1_memory.sh                # NODES=4 for 4 x 8 GPUs
#
# A good run: (expected, not measured) as UMA's, with answers that change only through the memories; no failed calls to the server
# (`endpoint/failed_calls/KIND` appears where there are any).
# Then merge and serve the result (runs/two-stage-1-memory-1x8/model is written at the end) and run two_stage_2_qa.sh. `recollect stages`
# does both by itself. Cost (estimated): as UMA's, less the answers, which are not trained.
set -euo pipefail
NODES=${NODES:-1}

exec recollect train bank --engine verl --name "two-stage-1-memory-${NODES}x8" \
    --model.path "${MODEL:-Qwen/Qwen3-4B-Instruct-2507}" \
    --rollout.tasks 32 --rollout.n 16 --updates-per-step 4 --agent.limits.max-context-tokens 16384 \
    --advantage grpo_std --loss.kl-coef 0.001 --optim.lr 1e-6 --steps 100 --test-freq 10 --save-freq 20 \
    "$@" -- \
    +actor_rollout_ref.rollout.agent_name_override=tool_mem_agent_twostage \
    +actor_rollout_ref.rollout.training_stage=memory \
    +actor_rollout_ref.rollout.fixed_model_api="${FIXED:-http://localhost:8000/v1}" \
    trainer.nnodes=$NODES trainer.n_gpus_per_node=8 \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 actor_rollout_ref.rollout.gpu_memory_utilization=0.7
