#!/bin/bash
# Starts one process for each cuda device.
set -e
export CUDA_VISIBLE_DEVICES=0,1,2,3
export NCCL_DEBUG=INFO
nvidia-smi
echo "training on cuda with nccl, devices $CUDA_VISIBLE_DEVICES"
torchrun --nproc_per_node=4 main.py --device cuda --dist-backend=nccl "$@"
cat <<USAGE
usage: run.sh --device cuda
USAGE
