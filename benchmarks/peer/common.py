"""Shared by the programs of this folder: the options of a network, clocks, and the JSON line at the end."""
import argparse
import contextlib
import json
import os
import resource
import sys
import time

import torch

import models

LOW_PRECISION = {'bf16-mixed': torch.bfloat16, '16-mixed': torch.float16}


def parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', choices=models.MODELS, default='resnet50', help='the network (default: resnet50)')
    p.add_argument('--image', type=natural, default=0, help='height and width of the images (default: the usual size for the network)')
    p.add_argument('--classes', type=natural, default=0, help='outputs of the head (default: the usual number for the network)')
    p.add_argument('--batch', type=natural, default=16, help='images per batch (default: 16)')
    p.add_argument('--precision', choices=['32-true', *LOW_PRECISION], default='32-true',
                   help='in the names of npu_train; mixed means autocast (default: 32-true)')
    p.add_argument('--channels-last', action='store_true', help='use the memory format channels_last')
    p.add_argument('--compile', action='store_true', help='compile the network with torch.compile')
    p.add_argument('--device', default='cpu', help='cpu, cuda or cuda:1 (default: cpu)')
    p.add_argument('--threads', type=natural, default=0, help="CPU threads for operators (default: torch's own choice)")
    return p


def natural(text):
    if not text.isdecimal() or int(text) == 0: raise argparse.ArgumentTypeError(f'{text!r} is not a positive integer')
    return int(text)


def parse(p):
    """Parses the options, sets the number of threads, and resolves the device and the image size."""
    a = p.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    try: a.device = torch.device(a.device)
    except RuntimeError as error: p.error(f'--device {a.device}: {str(error).splitlines()[0]}')
    if a.device.type == 'cuda' and not torch.cuda.is_available():
        p.error(f'--device {a.device}: this torch finds no CUDA device; use --device cpu')
    a.image = a.image or models.MODELS[a.model][1]
    torch.manual_seed(0)
    return a


def network(a):
    """(the network on its device, the callable for its forward): the network itself or its compiled form."""
    model = models.make(a.model, a.image, a.classes).to(a.device)
    if a.channels_last: model = model.to(memory_format=torch.channels_last)
    return model, torch.compile(model) if a.compile else model


def optimizer(a, model):
    """The default of `npu_tool bench`: AdamW for transformers, SGD with momentum for the others."""
    if a.model.startswith('vit'): return torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05, fused=True)
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)


def autocast(a):
    if a.precision == '32-true': return contextlib.nullcontext()
    return torch.autocast(a.device.type, dtype=LOW_PRECISION[a.precision])


def random_images(a):
    """A batch in host memory, pinned for a GPU."""
    x = torch.randn(a.batch, 3, a.image, a.image)
    if a.channels_last: x = x.contiguous(memory_format=torch.channels_last)
    return x.pin_memory() if a.device.type == 'cuda' else x


def timed(a, function, count):
    """The duration of each call in seconds, including the work that it started on the device, in increasing order."""
    wait = torch.cuda.synchronize if a.device.type == 'cuda' else lambda: None
    seconds = []
    wait()
    for _ in range(count):
        start = time.perf_counter()
        function()
        wait()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)


def percentile(ordered, p):
    """The smallest value that at least p percent of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * p // 100) - 1)]


def process_age():
    """Seconds since the kernel started this process, which includes the start of the interpreter; the resolution is 10 ms."""
    with open('/proc/self/stat') as stat: ticks = float(stat.read().rpartition(')')[2].split()[19])
    with open('/proc/uptime') as uptime: return float(uptime.read().split()[0]) - ticks / os.sysconf('SC_CLK_TCK')


def peak_memory(a):
    """The peak of this process in host memory, in MiB, and on a GPU the peak of all tensors, in bytes."""
    out = {'peak_rss_mb': round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}
    if a.device.type == 'cuda': out['peak_memory_bytes'] = torch.cuda.max_memory_allocated(a.device)
    return out


def report(a, **measured):
    """Prints the JSON line: options, measurements, parameters and FLOPs. FLOPs are counted last, so that this affects no measurement."""
    said = {key: str(value) if isinstance(value, torch.device) else value for key, value in vars(a).items()}
    memory = peak_memory(a)
    print(json.dumps(said | {'torch': torch.__version__} | measured | memory | models.count(a.model, a.image, a.classes)))
    sys.stdout.flush()
