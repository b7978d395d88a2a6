#!/usr/bin/env python3
"""Writes the results of plain PyTorch that the tests compare with: tests/fixtures/{optim,optimizers,resnet50,vit_tiny}_reference.json.

  .venv/bin/python scripts/pytorch_reference.py [--only optim|optimizers|resnet50|vit_tiny] [--check]

Requires torch and numpy, but not torchvision. `optimizers` also requires timm and transformers (.venv/models). The weights, the images and the gradients of the optimizer problem come from a formula
(`formula`) that the C++ tests compute too, so that no weight file is needed. All results are computed by one thread on contiguous tensors.
With --check nothing is written: the results of this machine are compared with the committed ones, and the largest differences are printed.
"""
import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FIXTURES = Path(__file__).resolve().parent.parent / 'tests' / 'fixtures'
PROJECTIONS = 16


# ---------------------------------------------------------------------------------------------------------------- formula
def fnv1a(text):
    """FNV-1a, 64 bits."""
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return h


def mix(name, count):
    """SplitMix64 of (name, 0), (name, 1), ...: `count` 64-bit numbers."""
    with np.errstate(over='ignore'):
        z = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return z ^ (z >> np.uint64(31))


def formula(name, shape):
    """Numbers in [-1, 1) with 24 bits each, as float64."""
    count = math.prod(shape)
    return ((mix(name, count) >> np.uint64(40)).astype(np.float64) * 2.0 ** -23 - 1.0).reshape(shape)


def weight(name, shape):
    """The initial value of a parameter: matrices are scaled by their fan-in, norms are around 1, the others are small."""
    u = formula(name, shape)
    if name.endswith('weight') and len(shape) == 4:
        return u * math.sqrt(6.0 / (shape[1] * shape[2] * shape[3]))
    if name.endswith('weight') and len(shape) == 2:
        return u * math.sqrt(3.0 / shape[1])
    if name.endswith('weight'):
        return 1.0 + 0.1 * u
    return 0.05 * u


def fill(model, scaled='', by=1.0):
    """Sets the parameters by the formula; those whose names end with `scaled` are multiplied by `by`."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = weight(name, tuple(p.shape)) * (by if scaled and name.endswith(scaled) else 1.0)
            p.copy_(torch.from_numpy(values.astype(np.float32)))


def images(name, batch, side):
    """Random images of unit variance."""
    return torch.from_numpy((formula(name, (batch, 3, side, side)) * math.sqrt(3.0)).astype(np.float32))


def labels(batch, classes, step):
    return torch.tensor([(7 * i + 3 + 5 * step) % classes for i in range(batch)])


def fingerprint(name, gradient):
    """Norm and random signed sums. Two gradients a, b with sums p, q: mean((p - q)^2) estimates |a - b|^2 without bias, hence the cosine."""
    g = gradient.detach().double().numpy().ravel()
    bits = mix('sign.' + name, g.size)
    total = g.sum()
    sums = [2.0 * float(g[(bits >> np.uint64(j)) & np.uint64(1) == 1].sum()) - float(total) for j in range(PROJECTIONS)]
    return {'norm': float(np.linalg.norm(g)), 'sums': sums}


# --------------------------------------------------------------------------------------------------------------- networks
class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        cout = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        cin = 64
        for layer, (width, count, stride) in enumerate(((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)), 1):
            blocks = []
            for i in range(count):
                blocks.append(Bottleneck(cin, width, stride if i == 0 else 1))
                cin = 4 * width
            setattr(self, f'layer{layer}', nn.Sequential(*blocks))
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Identity(), nn.Linear(4 * dim, dim), nn.Identity())

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.self_attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, tokens, dim, depth, heads):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, dim))
        self.layers = nn.Sequential()
        for i in range(depth):
            self.layers.add_module(f'encoder_layer_{i}', EncoderLayer(dim, heads))
        self.ln = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class Vit(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        self.conv_proj = nn.Conv2d(3, dim, patch, patch)
        self.encoder = Encoder((image // patch) ** 2 + 1, dim, depth, heads)
        self.heads = nn.Sequential()
        self.heads.add_module('head', nn.Linear(dim, classes))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


# ----------------------------------------------------------------------------------------------------------------- runs
def loss_of(model, step, batch, side, classes):
    return F.cross_entropy(model(images(f'pictures.{step}', batch, side)), labels(batch, classes, step))


def losses_of(model, optimizer, steps, batch, side, classes):
    out = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, batch, side, classes)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def gradients_of(model, batch, side, classes):
    model.zero_grad()
    loss_of(model, 0, batch, side, classes).backward()
    return {name: fingerprint(name, p.grad) for name, p in model.named_parameters()}


def resnet50():
    batch, side, classes = 8, 32, 10
    # With the last gammas at 0 most gradients are 0 too. They are therefore computed with a fifth of the formula's gammas, and on larger
    # images, so that a single ReLU that flips because of rounding does not matter.
    model = ResNet50(classes)
    fill(model, 'bn3.weight', 0.2)
    gradients = gradients_of(model, batch, 3 * side, classes)
    model = ResNet50(classes)
    fill(model, 'bn3.weight', 0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    losses = losses_of(model, optimizer, 5, batch, side, classes)
    return {'dtype': 'float32', 'tolerance': {'first_loss': 1e-6, 'losses': 1e-5, 'gradient_cosine': 0.9999},
            'batch': batch, 'side': side, 'classes': classes, 'threads': 1, 'torch': torch.__version__.split('+')[0],
            'last_gamma': {'losses': 0.0, 'gradients': 0.2}, 'gradient_side': 3 * side,
            'optimizer': {'name': 'sgd', 'lr': 0.01, 'momentum': 0.9, 'weight_decay': 1e-4},
            'parameters': sum(p.numel() for p in model.parameters()), 'losses': losses, 'gradients': gradients}


def vit_tiny():
    batch, side, classes = 8, 32, 10
    model = Vit(side, 4, 192, 12, 3, classes)
    fill(model)
    gradients = gradients_of(model, batch, side, classes)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    losses = losses_of(model, optimizer, 20, batch, side, classes)
    return {'dtype': 'float32', 'tolerance': {'first_loss': 1e-6, 'losses': 1e-4, 'gradient_cosine': 0.9999},
            'batch': batch, 'side': side, 'classes': classes, 'threads': 1, 'torch': torch.__version__.split('+')[0],
            'gradient_side': side, 'optimizer': {'name': 'adamw', 'lr': 1e-3, 'weight_decay': 0.05},
            'parameters': sum(p.numel() for p in model.parameters()), 'losses': losses, 'gradients': gradients}


SHAPES = {'w': (3, 4), 'b': (5,), 't': (2, 2, 2)}
STEPS = 10


def flat(values):
    return [float(v) for v in np.asarray(values, dtype=np.float64).ravel()]


def float32(values):
    """The values rounded to float32, so that every dtype starts from the same numbers."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


def optimizer_cases():
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    falling = [0.1 * 0.8 ** t for t in range(STEPS)]
    return [
        ('sgd', sgd, {'lr': 0.1}, None),
        ('sgd_weight_decay', sgd, {'lr': 0.1, 'weight_decay': 0.05}, None),
        ('sgd_momentum', sgd, {'lr': 0.1, 'momentum': 0.9}, None),
        ('sgd_momentum_dampening', sgd, {'lr': 0.1, 'momentum': 0.9, 'dampening': 0.3}, None),
        ('sgd_momentum_weight_decay', sgd, {'lr': 0.1, 'momentum': 0.9, 'weight_decay': 1e-4}, None),
        ('sgd_nesterov', sgd, {'lr': 0.1, 'momentum': 0.9, 'nesterov': True}, None),
        ('sgd_nesterov_weight_decay', sgd, {'lr': 0.1, 'momentum': 0.8, 'nesterov': True, 'weight_decay': 0.02}, None),
        ('sgd_momentum_falling_lr', sgd, {'lr': 0.1, 'momentum': 0.9}, falling),
        ('adam', adam, {'lr': 0.01}, None),
        ('adam_weight_decay', adam, {'lr': 0.01, 'weight_decay': 0.1}, None),
        ('adam_betas_eps', adam, {'lr': 0.02, 'betas': [0.8, 0.95], 'eps': 1e-3}, None),
        ('adamw', adamw, {'lr': 0.01, 'weight_decay': 0.01}, None),
        ('adamw_strong_decay', adamw, {'lr': 0.01, 'weight_decay': 0.3, 'betas': [0.9, 0.95]}, None),
        ('adamw_no_decay', adamw, {'lr': 0.01, 'weight_decay': 0.0}, None),
        ('adamw_falling_lr', adamw, {'lr': 0.1, 'weight_decay': 0.05}, falling),
    ]


def run_optimizer(kind, options, lrs, starts, gradients):
    params = {n: nn.Parameter(torch.from_numpy(starts[n].copy())) for n in SHAPES}
    optimizer = kind(params.values(), **options)
    values = []
    for t in range(STEPS):
        if lrs:
            optimizer.param_groups[0]['lr'] = lrs[t]
        for n, p in params.items():
            p.grad = torch.from_numpy(gradients[t][n].copy())
        optimizer.step()
        values.append({n: flat(p.detach()) for n, p in params.items()})
    return values


def scheduler_cases():
    s = torch.optim.lr_scheduler

    def warm_cosine(o):
        return s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 4), s.CosineAnnealingLR(o, 12, 0.05)], [4])

    return [
        ('constant', {}, lambda o: s.LambdaLR(o, lambda t: 1.0)),
        ('step', {'step_size': 3, 'gamma': 0.1}, lambda o: s.StepLR(o, 3, 0.1)),
        ('multistep', {'milestones': [2, 5, 9], 'gamma': 0.5}, lambda o: s.MultiStepLR(o, [2, 5, 9], 0.5)),
        ('exponential', {'gamma': 0.9}, lambda o: s.ExponentialLR(o, 0.9)),
        ('cosine', {'total': 20, 'min_factor': 0.0}, lambda o: s.CosineAnnealingLR(o, 20)),
        ('cosine_floor', {'total': 20, 'min_factor': 0.1}, lambda o: s.CosineAnnealingLR(o, 20, 0.1)),
        ('linear_warmup', {'start_factor': 0.1, 'end_factor': 1.0, 'total': 5}, lambda o: s.LinearLR(o, 0.1, 1.0, 5)),
        ('linear_decay', {'start_factor': 1.0, 'end_factor': 0.0, 'total': 16}, lambda o: s.LinearLR(o, 1.0, 0.0, 16)),
        ('polynomial', {'total': 15, 'power': 2.0}, lambda o: s.PolynomialLR(o, 15, 2.0)),
        ('warmup_cosine', {'warmup': 4, 'warmup_start': 0.1, 'total': 12, 'min_factor': 0.05}, warm_cosine),
        ('one_cycle', {'total': 20, 'pct_start': 0.3, 'anneal': 'cos', 'div_factor': 25.0, 'final_div_factor': 1e4, 'three_phase': False},
         lambda o: s.OneCycleLR(o, 1.0, 20, cycle_momentum=False)),
        ('one_cycle_linear', {'total': 20, 'pct_start': 0.4, 'anneal': 'linear', 'div_factor': 10.0, 'final_div_factor': 100.0, 'three_phase': False},
         lambda o: s.OneCycleLR(o, 1.0, 20, pct_start=0.4, anneal_strategy='linear', div_factor=10.0, final_div_factor=100.0, cycle_momentum=False)),
        ('one_cycle_three_phase', {'total': 20, 'pct_start': 0.3, 'anneal': 'cos', 'div_factor': 25.0, 'final_div_factor': 1e4, 'three_phase': True},
         lambda o: s.OneCycleLR(o, 1.0, 20, three_phase=True, cycle_momentum=False)),
    ]


def run_scheduler(make):
    """The factors at t = 0, 1, ... 19, as learning rates with a base rate of 1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
    scheduler, factors = make(optimizer), []
    for t in range(20):
        factors.append(float(optimizer.param_groups[0]['lr']))
        optimizer.step()
        if t < 19:
            scheduler.step()
    return factors


def optim():
    starts = {n: float32(formula('optim.' + n, s)) for n, s in SHAPES.items()}
    gradients = [{n: float32(formula(f'optim.{n}.grad.{t}', s)) for n, s in SHAPES.items()} for t in range(STEPS)]
    cases = []
    for name, kind, options, lrs in optimizer_cases():
        cases.append({'name': name, 'optimizer': kind.__name__.lower(), 'options': options, 'lr': lrs or [options['lr']] * STEPS,
                      'values': run_optimizer(kind, options, lrs, starts, gradients)})
    return {'dtype': 'float64, from numbers that a float32 holds', 'tolerance': {'float32': 2e-6, 'factor': 1e-9}, 'torch': torch.__version__.split('+')[0],
            'shapes': {n: list(s) for n, s in SHAPES.items()}, 'start': {n: flat(v) for n, v in starts.items()},
            'gradients': [{n: flat(v) for n, v in g.items()} for g in gradients], 'optimizers': cases,
            'schedulers': [{'name': n, 'options': o, 'factors': run_scheduler(make)} for n, o, make in scheduler_cases()]}


# ------------------------------------------------------------------------------------------------- optimizers and schedules by name
LONG = 50                # steps of each optimizer
KEPT = (1, 2, 10, LONG)  # steps whose values are written


def named_optimizer_cases():
    """(name here, options here, the peer's optimizer for named parameters)"""
    from timm.optim import Lion, RMSpropTF
    o = torch.optim

    def of_all(kind, **options):
        return lambda params: [kind(params.values(), **options)]

    def muon(adamw_lr_matrices=(), **options):
        def make(params):
            chosen = [n for n, p in params.items() if p.dim() > 1 and n not in adamw_lr_matrices]
            others = o.AdamW([p for n, p in params.items() if n not in chosen], options['lr'], eps=1e-8, weight_decay=options['weight_decay'])
            return [o.Muon([params[n] for n in chosen], **options), others]
        return make

    return [
        ('sgd', {'lr': 0.1, 'momentum': 0.9, 'dampening': 0.3, 'weight_decay': 0.01}, of_all(o.SGD, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)),
        ('sgd', {'lr': 0.01, 'momentum': 0.9, 'weight_decay': 0.1, 'maximize': True}, of_all(o.SGD, lr=0.01, momentum=0.9, weight_decay=0.1, maximize=True)),
        ('sgd', {'lr': 0.1, 'momentum': 0.8, 'nesterov': True}, of_all(o.SGD, lr=0.1, momentum=0.8, nesterov=True)),
        ('adam', {'lr': 0.01, 'weight_decay': 0.1}, of_all(o.Adam, lr=0.01, weight_decay=0.1)),
        ('adam', {'lr': 0.01, 'amsgrad': True, 'maximize': True}, of_all(o.Adam, lr=0.01, amsgrad=True, maximize=True)),
        ('adamw', {'lr': 0.01, 'weight_decay': 0.1}, of_all(o.AdamW, lr=0.01, weight_decay=0.1)),
        ('adamw', {'lr': 0.01, 'betas': [0.8, 0.9], 'amsgrad': True}, of_all(o.AdamW, lr=0.01, betas=(0.8, 0.9), amsgrad=True)),
        ('adamw', {'lr': 0.01, 'weight_decay': 0.1, 'maximize': True}, of_all(o.AdamW, lr=0.01, weight_decay=0.1, maximize=True)),
        ('rmsprop', {}, of_all(o.RMSprop)),
        ('rmsprop', {'alpha': 0.9, 'momentum': 0.5, 'weight_decay': 0.1}, of_all(o.RMSprop, alpha=0.9, momentum=0.5, weight_decay=0.1)),
        ('rmsprop', {'alpha': 0.9, 'momentum': 0.5, 'centered': True}, of_all(o.RMSprop, alpha=0.9, momentum=0.5, centered=True)),
        ('rmsprop', {'tensorflow': True, 'alpha': 0.9, 'eps': 1e-3}, of_all(RMSpropTF, alpha=0.9, eps=1e-3)),
        ('rmsprop', {'tensorflow': True, 'alpha': 0.9, 'eps': 1e-3, 'momentum': 0.9, 'weight_decay': 0.1, 'centered': True},
         of_all(RMSpropTF, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=0.1, centered=True)),
        ('adagrad', {}, of_all(o.Adagrad)),
        ('adagrad', {'lr': 0.1, 'lr_decay': 0.05, 'weight_decay': 0.1, 'initial_accumulator_value': 0.5},
         of_all(o.Adagrad, lr=0.1, lr_decay=0.05, weight_decay=0.1, initial_accumulator_value=0.5)),
        ('adadelta', {}, of_all(o.Adadelta)),
        ('adadelta', {'lr': 0.5, 'rho': 0.8, 'eps': 1e-3, 'weight_decay': 0.1}, of_all(o.Adadelta, lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1)),
        ('lion', {}, of_all(Lion)),
        ('lion', {'lr': 0.01, 'betas': [0.8, 0.95], 'weight_decay': 0.1}, of_all(Lion, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)),
        ('adafactor', {'eps': [1e-8, 1e-3]}, of_all(o.Adafactor, eps=(1e-8, 1e-3))),
        ('adafactor', {'lr': 0.5, 'eps': [1e-8, 0.2], 'beta2_decay': -0.5, 'd': 1.5, 'weight_decay': 0.1},
         of_all(o.Adafactor, lr=0.5, eps=(1e-8, 0.2), beta2_decay=-0.5, d=1.5, weight_decay=0.1)),
        ('muon', {}, muon(lr=1e-3, weight_decay=0.1)),
        ('muon', {'lr': 0.02, 'momentum': 0.9, 'nesterov': False, 'weight_decay': 0.05, 'ns_steps': 3, 'adjust_lr_fn': 'match_rms_adamw', 'adamw': ['t']},
         muon(('t',), lr=0.02, momentum=0.9, nesterov=False, weight_decay=0.05, ns_steps=3, adjust_lr_fn='match_rms_adamw')),
    ]


def run_named_optimizer(name, make, starts, gradients):
    shapes = {n: (s[0], -1) if name == 'muon' and len(s) > 2 else s for n, s in SHAPES.items()}  # the peer accepts only matrices
    params = {n: nn.Parameter(torch.from_numpy(starts[n].copy()).reshape(shapes[n])) for n in SHAPES}
    optimizers, values = make(params), []
    groups = [(g, g['lr']) for o in optimizers for g in o.param_groups]
    for t in range(LONG):
        for group, lr in groups:
            group['lr'] = lr * (1 - 0.01 * t)
        for n, p in params.items():
            p.grad = torch.from_numpy(gradients[t][n].copy()).reshape(shapes[n])
        for optimizer in optimizers:
            optimizer.step()
        if t + 1 in KEPT:
            values.append({n: flat(p.detach()) for n, p in params.items()})
    return values


def named_schedule_cases():
    """(name here, options here, the peer's factors at t = 0, 1, ...), all by steps."""
    from timm.scheduler import CosineLRScheduler
    from transformers.optimization import get_wsd_schedule
    s = torch.optim.lr_scheduler

    def of(make, step=lambda scheduler, t: scheduler.step()):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
        scheduler, factors = make(optimizer), []
        for t in range(60):
            factors.append(float(optimizer.param_groups[0]['lr']))
            optimizer.step()
            step(scheduler, t + 1)
        return factors

    def of_timm(**options):
        return of(lambda o: CosineLRScheduler(o, t_in_epochs=False, cycle_limit=9, **options), lambda scheduler, t: scheduler.step_update(t))

    def warm(make):
        return lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 4), make(o)], [4])

    def wsd(**options):
        return of(lambda o: get_wsd_schedule(o, 5, 15, min_lr_ratio=0.1, **options))

    w = {'warmup_steps': 4, 'warmup_start_factor': 0.1}
    wsd_options = {'warmup_steps': 5, 'warmup_start_factor': 0.1, 'stable_iters': 20, 'decay_iters': 15, 'min_lr': 0.1}
    return [
        ('exponential', {'gamma': 0.9}, of(lambda o: s.ExponentialLR(o, 0.9))),
        ('exponential', {'gamma': 0.9, **w}, of(warm(lambda o: s.ExponentialLR(o, 0.9)))),
        ('cosine_restarts', {'T_0': 7}, of(lambda o: s.CosineAnnealingWarmRestarts(o, 7))),
        ('cosine_restarts', {'T_0': 5, 'T_mult': 2, 'min_lr': 0.05}, of(lambda o: s.CosineAnnealingWarmRestarts(o, 5, 2, 0.05))),
        ('cosine_restarts', {'T_0': 5, 'T_mult': 3, **w}, of(warm(lambda o: s.CosineAnnealingWarmRestarts(o, 5, 3)))),
        ('cosine_restarts', {'T_0': 8, 'cycle_decay': 0.5, 'min_lr': 0.01}, of_timm(t_initial=8, cycle_decay=0.5, lr_min=0.01)),
        ('cosine_restarts', {'T_0': 6, 'T_mult': 2, 'cycle_decay': 0.7}, of_timm(t_initial=6, cycle_mul=2, cycle_decay=0.7)),
        ('wsd', wsd_options, wsd(num_stable_steps=20, decay_type='linear')),
        ('wsd', {**wsd_options, 'decay': 'cosine'}, wsd(num_stable_steps=20, decay_type='cosine')),
        ('wsd', {**wsd_options, 'decay': '1-sqrt'}, wsd(num_stable_steps=20, decay_type='1-sqrt')),
    ]


def plateau_cases():
    """(options, metrics, rates after each metric)"""
    falling = [1 / (1 + t) if t < 8 else 0.125 + 1e-6 * (t % 3) for t in range(40)]
    noisy = [float(v) for v in formula('plateau', (60,))]
    cases = []
    for options, metrics in (({'patience': 2}, falling), ({'patience': 3, 'cooldown': 4, 'factor': 0.5, 'min_lr': 1e-3}, falling), ({'patience': 0, 'factor': 0.9, 'mode': 'max'}, noisy),
                             ({'patience': 1, 'threshold': 0.1, 'threshold_mode': 'abs', 'eps': 1e-4}, noisy), ({'patience': 1, 'threshold': 0.2, 'mode': 'max', 'cooldown': 2}, noisy)):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
        scheduler, rates = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options), []
        for metric in metrics:
            scheduler.step(metric)
            rates.append(float(optimizer.param_groups[0]['lr']))
        cases.append({'options': {'mode': 'min', **options}, 'metrics': metrics, 'lr': rates})
    return cases


def optimizers():
    sys.path[:0] = [str(FIXTURES.parent / 'apps'), *map(str, FIXTURES.parent.parent.glob('.venv/models/lib/*/site-packages'))]
    import any_torchvision  # noqa: F401
    torch.Tensor.bfloat16 = torch.Tensor.clone  # Muon's iteration in full precision
    starts = {n: float32(formula('optim.' + n, s)) for n, s in SHAPES.items()}
    gradients = [{n: float32(formula(f'optim.{n}.grad.{t}', s)) for n, s in SHAPES.items()} for t in range(LONG)]
    return {'dtype': 'float64, from numbers that a float32 holds', 'torch': torch.__version__.split('+')[0], 'kept': KEPT, 'shapes': {n: list(s) for n, s in SHAPES.items()},
            'start': {n: flat(v) for n, v in starts.items()}, 'gradients': [{n: flat(v) for n, v in g.items()} for g in gradients],
            'optimizers': [{'name': n, 'options': o, 'values': run_named_optimizer(n, make, starts, gradients)} for n, o, make in named_optimizer_cases()],
            'schedules': [{'name': n, 'options': {'interval': 'step', **o}, 'factors': factors} for n, o, factors in named_schedule_cases()], 'plateaus': plateau_cases()}


# ------------------------------------------------------------------------------------------------------------------ main
def rounded(value):
    """The value rounded to nine digits, which identify every float32."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f'{value:.9g}') if isinstance(value, float) else value


def compare(name, now, then):
    losses = max(abs(a - b) / abs(b) for a, b in zip(now['losses'], then['losses']))
    worst = 1.0
    for p, a in now['gradients'].items():
        b = then['gradients'][p]
        apart = np.mean((np.array(a['sums']) - np.array(b['sums'])) ** 2)
        worst = min(worst, (a['norm'] ** 2 + b['norm'] ** 2 - apart) / (2 * a['norm'] * b['norm']) if b['norm'] else 1.0)
    first = abs(now['losses'][0] - then['losses'][0]) / then['losses'][0]
    print(f'{name}: first loss {first:.1e}, losses {losses:.1e} relative, smallest gradient cosine 1 - {1 - worst:.1e}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', choices=['optim', 'optimizers', 'resnet50', 'vit_tiny'])
    parser.add_argument('--check', action='store_true')
    args = parser.parse_args()
    torch.set_num_threads(1)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, run in (('optim', optim), ('optimizers', optimizers), ('resnet50', resnet50), ('vit_tiny', vit_tiny)):
        if args.only not in (None, name):
            continue
        path, result = FIXTURES / f'{name}_reference.json', run()
        if not args.check:
            text = json.dumps(result if name == 'optim' else rounded(result), separators=(',', ':'))
            path.write_text(text.replace('},{', '},\n{').replace('},"', '},\n"') + '\n')
            print(f'{path.name}: {path.stat().st_size} bytes')
        elif not name.startswith('optim'):
            compare(name, result, json.loads(path.read_text()))


if __name__ == '__main__':
    main()
