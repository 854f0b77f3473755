#!/usr/bin/env bash
# MemAgent's script for a small model, flag by flag, on one node of 4 GPUs.
#
#   TRAIN=hotpotqa_train_32k.parquet VAL=hotpotqa_dev.parquet bash recipes/memagent_seed_0.5b.sh     # -- trainer.nnodes=2 and so on at the end
#
# A good run: (expected, not measured) strict validation accuracy rises for 100 steps and more; `reward/mean` shows it first.
# Cost (estimated): as memagent_0.5b.sh, with four times the GPUs and texts of 8 chunks.
set -euo pipefail

exec recollect train hotpotqa --engine verl "$@" -- \
    recurrent.enable=memory recurrent.memory.config.chunk_size=5000 algorithm.adv_estimator=grpo algorithm.grpo_use_adv=False \
    trainer.save_freq=10 actor_rollout_ref.rollout.n=16 actor_rollout_ref.rollout.val_kwargs.n=4 \
    actor_rollout_ref.rollout.val_kwargs.do_sample=True actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
    actor_rollout_ref.rollout.val_kwargs.top_p=0.7 "trainer.logger=['console','wandb']" actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.optim.lr_warmup_steps=20 actor_rollout_ref.actor.clip_ratio_high=0.20 actor_rollout_ref.actor.entropy_coeff=0 \
    data.train_files="${TRAIN:-/data/hotpotqa_train_32k.parquet}" data.val_files="${VAL:-/data/hotpotqa_dev.parquet}" data.shuffle=False \
    data.filter_overlong_prompts=True data.train_batch_size=32 "data.truncation='center'" "+data.context_key='context'" \
    data.max_prompt_length=8192 data.max_response_length=1024 "reward_model.reward_manager='thread'" \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}" actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.ppo_mini_batch_size=8 \
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.actor.ulysses_sequence_parallel_size=1 actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=32768 \
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=32768 actor_rollout_ref.rollout.enforce_eager=False \
    actor_rollout_ref.rollout.free_cache_engine=False actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.temperature=1 \
    actor_rollout_ref.rollout.top_p=1.0 actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.max_num_batched_tokens=16384 \
    actor_rollout_ref.rollout.dtype=bfloat16 actor_rollout_ref.ref.fsdp_config.param_offload=True algorithm.kl_ctrl.kl_coef=0.001 \
    trainer.critic_warmup=0 trainer.project_name=memory_agent trainer.experiment_name=memory_agent_0.5b trainer.val_before_train=True \
    trainer.n_gpus_per_node=4 trainer.nnodes=1 trainer.test_freq=5 trainer.default_hdfs_dir=null \
    trainer.default_local_dir="${OUT:-/results/memory_agent}" trainer.total_epochs=30
