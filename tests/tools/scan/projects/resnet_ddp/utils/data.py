import torch
import torchvision.transforms as T


class Prefetcher:
    """Copies the next batch on a stream of its own (cuda only)."""

    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([123.7, 116.3, 103.5]).cuda().view(1, 3, 1, 1)

    def cuda(self):
        return self

    def preload(self):
        self.input, self.target = next(self.loader)
        with torch.cuda.stream(self.stream):
            self.input = self.input.cuda(non_blocking=True).float().sub_(self.mean)
        self.cuda()

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        if self.input.is_cuda:
            self.input.record_stream(torch.cuda.current_stream())
        return self.input, self.target


def build_loaders(args):
    transform = T.Compose([T.RandomResizedCrop(224), T.ToTensor()])
    pin = args.device == "cuda"
    kwargs = dict(num_workers=8, pin_memory=pin)
    return Prefetcher([transform, kwargs]), Prefetcher([])
