#!/usr/bin/env bash
python -m torch.distributed.launch --nproc_per_node=8 train.py
srun --gres=gpu:8 --gpus-per-node=8 python train.py
docker run --gpus all -it detector
