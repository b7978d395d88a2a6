#!/usr/bin/env bash
# Starts one process for each NPU (torchrun): run_distributed.sh @SCRIPT@[arguments of the program]. NPROC=2 starts two.
# Written by npu_tool.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
nproc=${NPROC:-$("$python" -c 'import torch, torch_npu; print(max(1, torch.npu.device_count()))')}
exec "$python" -m torch.distributed.run --standalone --nproc_per_node="$nproc" @PROGRAM@"$@"
