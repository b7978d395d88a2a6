#!/usr/bin/env python3
"""The networks of the peer's side in plain PyTorch, with their parameters and FLOPs.

  python benchmarks/peer/models.py                                  # parameters and FLOPs, one JSON line per network
  python benchmarks/peer/models.py --model vit_b16 --image 224

torch.utils.flop_counter counts the FLOPs of the forward of one image: two for each multiply-add of convolutions (padding is included),
products and attention, and none for elementwise operators. npu_tool counts in the same way.
"""
import argparse
import json

import torch
from torch import nn
from torch.nn import functional as F

FLOPS_ARE = 'forward of one image, 2 per multiply-add of convolutions (padding included), products and attention'


def conv_bn(cin, cout, kernel, stride=1, relu=True):
    conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode='fan_out', nonlinearity='relu')
    return [conv, nn.BatchNorm2d(cout)] + [nn.ReLU(inplace=True)] * relu


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        cout = 4 * width
        self.main = nn.Sequential(*conv_bn(cin, width, 1), *conv_bn(width, width, 3, stride), *conv_bn(width, cout, 1, relu=False))
        nn.init.zeros_(self.main[-1].weight)  # as npu_train's resnet50: each block starts as its shortcut
        same = stride == 1 and cin == cout
        self.side = nn.Identity() if same else nn.Sequential(*conv_bn(cin, cout, 1, stride, relu=False))

    def forward(self, x): return F.relu(self.main(x).add_(self.side(x)), inplace=True)


def resnet50(classes=1000, image=224):
    """With the stem for ImageNet. The network accepts every image size, so `image` is not used."""
    layers, cin = [*conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(cin, width, stride if i == 0 else 1))
            cin = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Residual(nn.Sequential):
    def forward(self, x): return x + super().forward(x)


class VisionTransformer(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        norm = lambda: nn.LayerNorm(dim, eps=1e-6)
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (image // patch) ** 2, dim))
        blocks = []
        for _ in range(depth):
            blocks += [Residual(norm(), Attention(dim, heads)),
                       Residual(norm(), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))]
        self.blocks, self.norm, self.head = nn.Sequential(*blocks), norm(), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        x = torch.cat((self.token.expand(len(x), -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.blocks(x)[:, 0]))


def vit(patch, dim, heads):
    return lambda classes, image: VisionTransformer(image, patch, dim, 12, heads, classes)


# {name in npu_train: (constructor, default image size, default number of classes)}; the defaults are those of npu_tool
MODELS = {'resnet50': (resnet50, 224, 1000), 'vit_tiny_cifar10': (vit(4, 192, 3), 32, 10), 'vit_b16': (vit(16, 768, 12), 224, 1000)}


def make(name, image=0, classes=0):
    build, usual_image, usual_classes = MODELS[name]
    return build(classes=classes or usual_classes, image=image or usual_image)


def count(name, image=0, classes=0):
    """The numbers that must be equal on both sides. On the device `meta` nothing is computed and no memory is allocated."""
    from torch.utils.flop_counter import FlopCounterMode
    size = image or MODELS[name][1]
    with torch.device('meta'), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = make(name, size, classes).eval()
        model(torch.empty(1, 3, size, size))
    return {'parameters': sum(p.numel() for p in model.parameters()), 'flops_per_image': counter.get_total_flops(), 'flops_are': FLOPS_ARE}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', choices=MODELS, nargs='*', default=list(MODELS), help='networks (default: all)')
    p.add_argument('--image', type=int, default=0, help='height and width of the images (default: the usual size for the network)')
    p.add_argument('--classes', type=int, default=0, help='outputs of the head (default: the usual number for the network)')
    a = p.parse_args()
    for name in a.model: print(json.dumps({'model': name} | count(name, a.image, a.classes)))


if __name__ == '__main__': main()
