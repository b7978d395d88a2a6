#!/usr/bin/env python3
"""Trains a ResNet on ImageNet.

Runs on cuda when there is one: `python main.py --device cuda`. A GPU with many cuda_cores helps.
"""
import argparse
import os
import random

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.nn as nn
import torch.nn.parallel
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision import models

from utils.data import build_loaders
from utils.meters import AverageMeter, memory_line

try:
    from apex import amp
    from apex.parallel import convert_syncbn_model
except ImportError:
    amp = None


def parse_args():
    parser = argparse.ArgumentParser(description="cuda is great, and so is nccl")
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cpu or cuda")
    parser.add_argument("--no-cuda", action="store_true", help="disables cuda training")
    parser.add_argument('--dist-backend', default='nccl', type=str, help='distributed backend')
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    parser.add_argument("--opt-level", default=None)
    parser.add_argument("--cuda_cores", type=int, default=0)  # cuda cores, only printed
    return parser.parse_args()


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    cudnn.deterministic = True
    cudnn.benchmark = False


def main():
    args = parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    set_seed(0)
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        torch.cuda.set_device(args.local_rank)
        dist.init_process_group(backend=args.dist_backend, init_method="env://")
        assert dist.get_backend() == "nccl" or not use_cuda
    device = torch.device(f"cuda:{args.local_rank}" if use_cuda else "cpu")

    model = models.__dict__[args.arch]()
    model = model.cuda()
    criterion = nn.CrossEntropyLoss().cuda(args.local_rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    if args.opt_level is not None:
        model = convert_syncbn_model(model)
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
    if distributed:
        model = DDP(model, device_ids=[args.local_rank])
    elif torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    model = model.to(memory_format=torch.channels_last)

    scaler = GradScaler()
    train_loader, val_loader = build_loaders(args)
    for epoch in range(90):
        train(train_loader, model, criterion, optimizer, scaler, device, args)
        if args.local_rank == 0:
            state = {"epoch": epoch, "model": model.state_dict(), "cuda_rng": torch.cuda.get_rng_state()}
            torch.save(state, "checkpoint.pth")
            print(f"epoch {epoch}: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB, {memory_line(device)}")


def train(loader, model, criterion, optimizer, scaler, device, args):
    losses = AverageMeter()
    model.train()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for images, target in loader:
        start.record()
        images = images.to(device, non_blocking=True)
        target = target.cuda(non_blocking=True)
        with autocast():
            output = model(images)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if amp is not None and args.opt_level is not None:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        end.record()
        torch.cuda.synchronize()
        losses.update(loss.item(), images.size(0))


def load(path, rank):
    # map to the device of this rank: cuda:0 -> cuda:1
    map_location = {"cuda:%d" % 0: "cuda:%d" % rank}
    return torch.load(path, map_location=map_location)


if __name__ == "__main__":
    main()
