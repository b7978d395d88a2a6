"""Trainings in PyTorch that Ascend's msprobe dumps, for peer_dumps_test.py: python_dumps.py make|dump NETWORK FOLDER [TASK FAULT ...]

  make   writes the weights of the network, its TorchScript module, and the data of three batches; prints the places of its faults as JSON
  dump   trains it as it is (FAULT "none") or with one planted fault, and dumps the steps to FOLDER/theirs_TASK_FAULT

PEER_DEVICE is the device of the training: cpu, or npu, with torch_npu. The faults are at the places that PLACES names; a fault that a network has no place for is not planted in it."""
import json
import os
import pathlib
import random
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

warnings.simplefilter('ignore')
torch.set_num_threads(1)
import any_torchvision  # noqa: E402, F401
DEVICE = os.environ.get('PEER_DEVICE', 'cpu')
if DEVICE == 'npu': import torch_npu  # noqa: E402, F401

BATCH, BATCHES, SIDE, CLASSES, CONTEXT, TOKENS = 8, 3, 32, 2, 16, 48
STEPS = {'momentum': 3}  # number of steps; two for the other faults
RATE = {'gpt2': 0.01, 'vit': 0.01}


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x): return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Residual(nn.Module):
    """The same network as in own_networks_main.cpp."""
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = nn.Sequential(Block(32), Block(32))
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x): return self.fc(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


def resnet18():
    from torchvision import models
    return models.resnet18(num_classes=CLASSES)


def vit():
    import timm
    return timm.models.vision_transformer.VisionTransformer(img_size=SIDE, patch_size=8, embed_dim=64, depth=2, num_heads=2, num_classes=CLASSES)


def gpt2():
    import transformers as t
    return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=TOKENS, n_positions=CONTEXT, n_layer=2, n_head=2, n_embd=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                          bos_token_id=None, eos_token_id=None))


NETWORKS = {'residual': Residual, 'resnet18': resnet18, 'vit': vit, 'gpt2': gpt2}
PLACES = {
    'residual': {'eps': 'blocks.1.bn1', 'weight': 'blocks.0.conv2', 'momentum': '', 'padding': 'blocks.1.conv1', 'dropout': 'fc', 'lr': '', 'buffer': 'blocks.0.bn2',
                 'input': '', 'bf16': 'blocks.0.conv2', 'reduction': ''},
    'resnet18': {'eps': 'layer3.1.bn2', 'weight': 'layer2.0.conv1', 'momentum': '', 'padding': 'layer2.1.conv1', 'dropout': 'fc', 'lr': '', 'buffer': 'layer1.0.bn1',
                 'input': '', 'bf16': 'layer3.0.conv1', 'reduction': ''},
    'vit': {'eps': 'blocks.1.norm1', 'weight': 'blocks.0.mlp.fc1', 'momentum': '', 'padding': 'patch_embed.proj', 'dropout': 'head', 'lr': '', 'buffer': 'gradients',
            'input': '', 'bf16': 'blocks.1.mlp.fc1', 'reduction': ''},
    'gpt2': {'eps': 'transformer.h.1.ln_2', 'weight': 'transformer.h.0.mlp.c_fc', 'momentum': '', 'mask': '', 'dropout': 'lm_head', 'lr': '', 'buffer': 'gradients',
             'input': '', 'bf16': 'transformer.h.1.mlp.c_fc', 'tied': '', 'reduction': ''},
}


def network(name):
    torch.manual_seed(0)
    net = NETWORKS[name]()
    for p in net.parameters():
        if p.dim() == 1: p.data.add_(torch.randn_like(p) * 0.1)  # so that no two layers are equal
    if name == 'vit': nn.init.normal_(net.head.weight, std=0.02)
    return net.train()


def write_data(name, folder):
    """The batches of a training, in the order in which train_app reads them without a shuffle."""
    from images import png_of
    source = random.Random(1)
    if name == 'gpt2':
        (folder / 'tokens.bin').write_bytes(bytes(b for _ in range(BATCH * BATCHES * CONTEXT + 1) for b in (source.randrange(TOKENS), 0)))
        return
    for c in range(CLASSES):
        to = folder / 'train' / f'c{c}'
        to.mkdir(parents=True)
        for i in range(BATCH * BATCHES // CLASSES): (to / f'{i:02}.png').write_bytes(png_of(SIDE, source.randbytes(3 * SIDE * SIDE)))


def batches(name, folder):
    if name == 'gpt2':
        tokens = torch.frombuffer(bytearray((folder / 'tokens.bin').read_bytes()), dtype=torch.int16).long()
        windows = [[tokens[i * CONTEXT + shift:(i + 1) * CONTEXT + shift] for i in range(BATCH * BATCHES)] for shift in (0, 1)]
        x, y = (torch.stack(w) for w in windows)
    else:
        import numpy
        from PIL import Image
        files = sorted((folder / 'train').glob('*/*.png'))
        pixels = torch.stack([torch.from_numpy(numpy.array(Image.open(f))).permute(2, 0, 1).float() / 255 for f in files])
        x = (pixels - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        y = torch.tensor([int(f.parent.name[1:]) for f in files])
    return list(zip(x.split(BATCH), y.split(BATCH)))


def make(name, folder):
    net = network(name)
    write_data(name, folder)
    print(json.dumps(PLACES[name]))
    if name == 'gpt2':
        net.save_pretrained(folder / 'weights')
        return
    torch.save(net.state_dict(), folder / 'weights.pth')
    if name == 'vit': torch.jit.trace(net, batches(name, folder)[0][0]).save(folder / 'module.pt')
    else: torch.jit.script(net).save(folder / 'module.pt')


def in_bf16(layer):
    """Makes the layer compute in bf16, like in a region of autocast."""
    full = layer.forward

    def forward(x):
        low = torch.autocast(DEVICE, torch.bfloat16)
        with low: return full(x).float()
    layer.forward = forward


def plant(net, name, fault):
    place = PLACES[name][fault]
    layer = net.get_submodule(place) if place not in ('', 'gradients') else None
    if fault == 'eps': layer.eps = 1e-2
    if fault == 'weight': layer.weight.data.mul_(1.01)
    if fault == 'padding': layer.padding, layer.padding_mode = ((1, 1), 'zeros') if name == 'vit' else (layer.padding, 'replicate')
    if fault == 'padding' and name != 'vit': layer._reversed_padding_repeated_twice = [1, 1, 1, 1]
    if fault == 'dropout': layer.register_forward_pre_hook(lambda _, args: (F.dropout(args[0], 0.1),))
    if fault == 'buffer' and layer is not None: layer.eval()  # lets the layer normalise with its running statistics
    if fault == 'bf16': in_bf16(layer)
    if fault == 'tied': net.lm_head.weight = nn.Parameter(net.lm_head.weight.detach().clone())
    if fault == 'mask':
        for block in net.transformer.h: block.attn.is_causal = False
        net.config._attn_implementation = 'sdpa'


def loss_of(net, name, x, y, fault):
    reduction = 'sum' if fault == 'reduction' else 'mean'
    if name != 'gpt2': return F.cross_entropy(net(x), y, reduction=reduction)
    mask = torch.zeros(x.shape[0], 1, x.shape[1], x.shape[1], device=x.device) if fault == 'mask' else None
    return F.cross_entropy(net(x, attention_mask=mask, use_cache=False).logits.flatten(0, 1), y.flatten(), reduction=reduction)


def forward_with_names(net, x, save):
    """The forward pass, with the values named as in own_networks_main.cpp."""
    first = F.relu(net.stem(x))
    save(first, 'first')
    pooled = net.blocks(first).mean((2, 3))
    save(pooled, 'pooled')
    return net.fc(pooled)


def dump(name, folder, task, fault):
    """The task debug dumps values of the residual network by name."""
    from msprobe.pytorch import PrecisionDebugger
    net = network(name)
    if fault != 'none': plant(net, name, fault)
    net.to(DEVICE)
    rate = RATE.get(name, 0.1) * (2 if fault == 'lr' else 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.5 if fault == 'momentum' else 0.9)
    scopes = {'scope': [], 'list': [], 'data_mode': ['all']}
    to = folder / f'theirs_{task}_{fault}'
    config = folder / f'msprobe_{os.getpid()}.json'
    config.write_text(json.dumps({'task': 'tensor' if task == 'debug' else task, 'dump_path': str(to), 'rank': [], 'step': [], 'level': 'debug' if task == 'debug' else 'L0', 'async_dump': False, 'tensor': scopes,
                                  'statistics': scopes | {'summary_mode': 'statistics'}}))
    debugger = PrecisionDebugger(config_path=str(config))
    if task == 'debug': net.forward = lambda x: forward_with_names(net, x, debugger.save)
    data = batches(name, folder)
    for step in range(STEPS.get(fault, 2)):
        x, y = data[step]
        if fault == 'input': x = x.flip(1)  # exchanges red and blue, or the order of the tokens
        x, y = x.to(DEVICE), y.to(DEVICE)
        debugger.start(model=net)
        loss = loss_of(net, name, x, y, fault)
        if fault != 'buffer' or PLACES[name][fault] != 'gradients': optimizer.zero_grad()
        loss.backward()
        debugger.stop()
        optimizer.step()
        debugger.step()


def main():
    what, name, folder, *rest = sys.argv[1:]
    folder = pathlib.Path(folder)
    if what == 'make': return make(name, folder)
    import msprobe.pytorch  # noqa: F401  once for all
    network(name)
    task, *faults = rest
    for fault in faults:  # one fault after the other, because msprobe keeps one debugger per process
        child = os.fork()
        if child == 0:
            code = 1
            try:
                dump(name, folder, task, fault)
                code = 0
            finally: os._exit(code)
        if os.waitpid(child, 0)[1] != 0: sys.exit(f'{name}: {fault} failed')


if __name__ == '__main__': main()
