#!/usr/bin/env python3
"""Measures the data loading of a training run in plain PyTorch: torchvision's transforms in a DataLoader.

  python benchmarks/peer/data.py --cifar data/cifar-10-batches-bin --workers 0    # crop with padding 4, mirror, normalise
  python benchmarks/peer/data.py --jpegs data/imagenet/train --workers 2          # random box to 224, mirror, colours, rotation, normalise
  python benchmarks/peer/data.py --make-jpegs DIR                                 # generates images to measure with: 500x375, ten classes

Requires torchvision and pillow. The JSON line has samples_per_s, images, batch, workers; the first epoch is not measured.
"""
import argparse
import json
import pathlib
import re
import sys
import time

import numpy as np
import torch

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def torchvision():
    """Imports torchvision. Its compiled part works only with one build of torch. With any other build, its Python part is sufficient here,
    once the operators that it looks up are declared."""
    for _ in range(8):
        try:
            import torchvision.datasets
            import torchvision.transforms.v2
            return sys.modules['torchvision']
        except RuntimeError as error:
            missing = re.search(r'operator torchvision::(\w+) does not exist', str(error))
            if not missing: raise
            DECLARED.define(f'{missing[1]}(Tensor x) -> Tensor')
            for name in [n for n in sys.modules if n.partition('.')[0] == 'torchvision']: del sys.modules[name]
    raise SystemExit(f'torchvision cannot be loaded with torch {torch.__version__}; install the torchvision of this version')


DECLARED = torch.library.Library('torchvision', 'FRAGMENT')


def read_cifar(folder, pattern='data_batch_*.bin'):
    """(images [N, 3, 32, 32] as bytes, labels)."""
    files = sorted(pathlib.Path(folder).glob(pattern))
    if not files: raise SystemExit(f'{folder} contains no {pattern}; download CIFAR-10 in its binary format with scripts/get_data cifar10')
    raw = np.concatenate([np.fromfile(f, np.uint8).reshape(-1, 3073) for f in files])
    return raw[:, 1:].reshape(-1, 3, 32, 32), torch.from_numpy(raw[:, 0].astype(np.int64))


class Cifar(torch.utils.data.Dataset):
    def __init__(self, folder):
        T = torchvision().transforms.v2
        images, self.labels = read_cifar(folder)
        self.images = torch.from_numpy(images.copy())
        # on tensors, which is faster than the same steps on PIL images
        self.augment = T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True),
                                  T.Normalize(CIFAR_MEAN, CIFAR_STD, inplace=True)])

    def __len__(self): return len(self.labels)

    def __getitem__(self, i): return self.augment(self.images[i]), self.labels[i]


def loader(dataset, batch, workers):
    return torch.utils.data.DataLoader(dataset, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def cifar(folder, batch, workers): return loader(Cifar(folder), batch, workers)


def jpegs(folder, batch, workers):
    vision = torchvision()
    T = vision.transforms
    augment = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ColorJitter(0.2, 0.2, 0.2, 0.1), T.RandomRotation(15),
                         T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD, inplace=True)])
    return loader(vision.datasets.ImageFolder(folder, augment), batch, workers)


def make_jpegs(folder, count):
    """Writes images of smooth colours with edges and grain: as large, and as expensive to decode, as photographs of this size."""
    from PIL import Image
    draw = np.random.default_rng(7)
    width, height = 500, 375
    for i in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
        blocks = Image.fromarray(draw.integers(0, 80, (47, 63, 3), np.uint8)).resize((width, height), Image.Resampling.NEAREST)
        pixels = np.asarray(coarse, np.int16) * 0.7 + np.asarray(blocks, np.int16) + draw.normal(0, 6, (height, width, 1))
        name = pathlib.Path(folder) / f'class_{i % 10}' / f'{i}.jpg'
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(name, quality=90)


def measure(batches):
    """(images per epoch, images per second): measured from the second epoch on, for at least a second."""
    images, seconds, epochs = 0, 0.0, 0
    while epochs < 2 or seconds < 1:
        if epochs == 1: images, seconds = 0, 0.0
        start = time.perf_counter()
        for _, labels in batches: images += len(labels)
        seconds += time.perf_counter() - start
        epochs += 1
    return images // (epochs - 1), images / seconds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument('--cifar', metavar='DIR', help='the folder with the binary files of CIFAR-10')
    what.add_argument('--jpegs', metavar='DIR', help='the folder with the images DIR/<class>/*.jpg')
    what.add_argument('--make-jpegs', metavar='DIR', help='only generate images: DIR/<class>/*.jpg')
    p.add_argument('--count', type=int, default=320, help='the number of images that --make-jpegs writes (default: 320)')
    p.add_argument('--batch', type=int, default=0, help='images per batch (default: 128 of CIFAR, 32 of JPEGs)')
    p.add_argument('--workers', type=int, default=2, help='worker processes; 0 loads in this process (default: 2)')
    p.add_argument('--threads', type=int, default=0, help="CPU threads for operators (default: torch's own choice)")
    a = p.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    if a.make_jpegs: return make_jpegs(a.make_jpegs, a.count)
    a.batch = a.batch or (128 if a.cifar else 32)
    batches = cifar(a.cifar, a.batch, a.workers) if a.cifar else jpegs(a.jpegs, a.batch, a.workers)
    images, speed = measure(batches)
    print(json.dumps({'images': images, 'samples_per_s': speed, 'batch': a.batch, 'workers': a.workers, 'torch': torch.__version__}))


if __name__ == '__main__': main()
