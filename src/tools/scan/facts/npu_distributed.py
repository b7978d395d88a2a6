"""One process for each NPU in place of torch.nn.DataParallel, written by npu_tool.

run_distributed.sh starts the processes. Started as before, the program is the only rank; if it is not in
this file's folder, PYTHONPATH must name the folder. Without an NPU the ranks compute on the CPU.
"""
import multiprocessing
import os
import weakref

import torch
import torch_npu  # noqa: F401
import torch.distributed as dist
import torch.utils.data

_samplers = weakref.WeakSet()
_epochs_are_set = False


def on_npu(): return torch.npu.is_available()


def local_rank(): return int(os.environ.get("LOCAL_RANK", 0))


def rank(): return dist.get_rank() if dist.is_initialized() else 0


def world_size(): return dist.get_world_size() if dist.is_initialized() else 1


def device():
    """The device of this rank, such as "npu:1"."""
    return f"npu:{local_rank()}" if on_npu() else "cpu"


def set_device(_):
    """Each rank keeps its own device, whichever the program selects."""
    if on_npu(): torch.npu.set_device(local_rank())


def start():
    """Joins the ranks. The workers of a loader, which import the program's files too, are no ranks."""
    if dist.is_initialized() or multiprocessing.parent_process() is not None: return
    set_device(None)
    backend = "hccl" if on_npu() else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


class Untrained(torch.nn.Module):
    """A model without trainable parameters, of which no gradients are averaged."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs, **named): return self.module(*inputs, **named)


class DataParallel(torch.nn.parallel.DistributedDataParallel):
    """Accepts the arguments of torch.nn.DataParallel. Each rank computes its part of a batch, and gradients are averaged."""

    def __new__(cls, module, *args, **options):
        trained = any(p.requires_grad for p in module.parameters())
        return super().__new__(cls) if trained else Untrained(module.to(device()))

    def __init__(self, module, device_ids=None, output_device=None, dim=0, **options):
        options.setdefault("find_unused_parameters", True)  # DataParallel accepts a parameter without a gradient
        super().__init__(module.to(device()), device_ids=[local_rank()] if on_npu() else None, **options)


class DataLoader(torch.utils.data.DataLoader):
    """Divides the batches of a shuffled data set among the ranks; batch_size is that of all ranks. Each rank reads any other data in full."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, *args, **options):
        self._own = None
        self._passes = 0
        if shuffle and sampler is None and batch_sampler is None and not isinstance(dataset, torch.utils.data.IterableDataset):
            if batch_size is not None:
                if batch_size % world_size():
                    raise ValueError(f"batch_size={batch_size} cannot be divided among {world_size()} ranks: choose a multiple")
                batch_size //= world_size()
            self._own = sampler = torch.utils.data.DistributedSampler(dataset, world_size(), rank())
            _samplers.add(sampler)
            shuffle = None
        super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler, *args, **options)

    def __iter__(self):
        if self._own is not None and not _epochs_are_set: self._own.set_epoch(self._passes)
        self._passes += 1
        return super().__iter__()


def set_epoch(epoch):
    """Gives each epoch another order, the same on all ranks. Without a call, the passes over a loader are counted."""
    global _epochs_are_set
    _epochs_are_set = True
    for sampler in _samplers: sampler.set_epoch(epoch)


def save(obj, f, *args, **options):
    """torch.save() by rank 0, for which the others do not wait: the weights of all ranks are equal. A file appears complete."""
    if rank() != 0: return
    if not isinstance(f, (str, os.PathLike)): return torch.save(obj, f, *args, **options)
    unfinished = f"{os.fspath(f)}.unfinished"
    torch.save(obj, unfinished, *args, **options)
    os.replace(unfinished, f)


start()
