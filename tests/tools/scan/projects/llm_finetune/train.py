import os

import bitsandbytes as bnb
import deepspeed
import torch
import transformers
from colossalai.nn.optimizer import HybridAdam
from flash_attn import flash_attn_func
from peft import LoraConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.profiler import ProfilerActivity, profile

from composer import layers  # of this project
from kernels.rms_norm import rms_norm

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cuda.enable_flash_sdp(True)


def main():
    rank = int(os.environ["LOCAL_RANK"])
    deepspeed.init_distributed(dist_backend="cpu:gloo,cuda:nccl")
    quantization = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = transformers.AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b", device_map={"": rank},
                                                              quantization_config=quantization)
    optimizer = bnb.optim.AdamW8bit(model.parameters())
    hybrid = HybridAdam(model.parameters())
    model = torch.compile(model)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        torch.cuda.nvtx.range_push("step")
        q = torch.randn(1, 128, 8, 64, device="cuda:" + str(rank))
        out = flash_attn_func(q, q, q, causal=True)
        torch.cuda.nvtx.range_pop()
    graph = torch.cuda.CUDAGraph()
    major, _ = torch.cuda.get_device_capability()
    backends = {"cuda": FSDP, "cpu": None}
    stats = torch.cuda.memory_usage()
    rngs = {"x": quantization}["cuda"]
    match rank:
        case 0:
            layers.show(out, rms_norm, hybrid, graph, major, backends, stats, rngs, engine, LoraConfig)
