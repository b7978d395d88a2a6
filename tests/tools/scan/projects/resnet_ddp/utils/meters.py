import logging

logger = logging.getLogger(__name__)

MESSAGES = {
    "oom": "CUDA out of memory; lower --batch-size or set CUDA_VISIBLE_DEVICES",
    "slow": 'torch.cuda is not available, training on the "cpu"',
}


class AverageMeter:
    """Keeps a mean.

    >>> meter = AverageMeter()
    >>> meter.update(torch.ones(1).cuda())
    """

    def __init__(self):
        self.cuda_cores = 0
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


def memory_line(device):
    if device.type != "cuda":
        return "no cuda"
    import torch as t
    props = t.cuda.get_device_properties(device)
    used = t.cuda.memory_allocated(device)
    logger.info("cuda memory of %s", device)
    return f"{used / props.total_memory:.1%} of cuda:0"
