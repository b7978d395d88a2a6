"""Networks of torchvision, timm or transformers with random weights, for python_weights_test.py: python_models.py make|load|train LIBRARY JOBS.json

  make   writes the files and the logits of each network of the library
  load   reads files that npu_tool wrote, strictly, and compares the logits with those of `make`
  train  continues trainings from the files of `npu_tool weights --as training`

Prints one JSON document: by name, the largest difference of the logits relative to the largest logit, or the losses."""
import json
import pathlib
import sys
import warnings

import torch

warnings.simplefilter('ignore')
torch.manual_seed(0)
torch.set_num_threads(1)
import any_torchvision  # noqa: F401

LATER_VITS = {'vit_layer_scale': {'init_values': 0.3}, 'vit_deit3': {'init_values': 0.3, 'no_embed_class': True}, 'vit_qk_norm': {'qk_norm': True},
              'vit_registers': {'reg_tokens': 3, 'no_embed_class': True, 'init_values': 0.3}}
BLOCKS = {'resnet18': [2, 2, 2, 2], 'resnet50': [3, 4, 6, 3]}


def torchvision_network(name, image=32, patch=8, **_):
    from torchvision import models
    if name == 'vit': return models.VisionTransformer(image, patch, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=128, num_classes=10)
    return getattr(models, name)(num_classes=10)


def timm_network(name, image=32, patch=8, **_):
    import timm
    if name.startswith('hub_'): return timm.create_model(name[4:], num_classes=10, **({} if 'resnet' in name else {'img_size': 32}))
    if name.startswith('vit'):
        net = timm.models.deit.VisionTransformerDistilled if name == 'vit_distilled' else timm.models.VisionTransformer
        return net(image, patch, embed_dim=32, depth=2, num_heads=2, num_classes=10, **LATER_VITS.get(name, {}))
    return timm.create_model(name, num_classes=10)


def transformers_network(name, image=32, patch=8, eps=1e-12):
    import transformers as t
    if name == 'vit':
        return t.ViTForImageClassification(t.ViTConfig(image_size=image, patch_size=patch, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                                       intermediate_size=128, num_labels=10, layer_norm_eps=eps))
    basic = name == 'resnet18'
    return t.ResNetForImageClassification(t.ResNetConfig(layer_type='basic' if basic else 'bottleneck', depths=BLOCKS[name], num_labels=10,
                                                         hidden_sizes=[64 << i if basic else 256 << i for i in range(4)]))


NETWORKS = {'torchvision': torchvision_network, 'timm': timm_network, 'transformers': transformers_network}


def randomise(net):
    """Every tensor differs from its neighbours, running statistics too."""
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if name.endswith('running_var'): value.uniform_(0.5, 1.5)
            elif value.is_floating_point() and value.dim() < 2: value.add_(torch.randn_like(value) * 0.1)
            elif 'cls_token' in name or 'class_token' in name or 'dist_token' in name or 'reg_token' in name or 'pos' in name or 'head' in name: value.normal_(std=0.2)
    return net.eval()


def prepared(images):
    """Images as raw RGB, normalised as npu_tool predict does it."""
    pixels = torch.stack([torch.frombuffer(bytearray(pathlib.Path(i).read_bytes()), dtype=torch.uint8) for i in images])
    side = int((pixels.shape[1] // 3) ** 0.5)
    x = pixels.reshape(-1, side, side, 3).permute(0, 3, 1, 2).float() / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (x - mean[:, None, None]) / std[:, None, None]


def prepared_by_timm(net, images):
    """The same images, prepared by the network's pretrained_cfg, which a folder of the Hub contains."""
    from PIL import Image
    from timm.data import create_transform, resolve_data_config
    raw = [pathlib.Path(i).read_bytes() for i in images]
    side = int((len(raw[0]) // 3) ** 0.5)
    transform = create_transform(**resolve_data_config({'input_size': (3, side, side)}, model=net))
    return torch.stack([transform(Image.frombytes('RGB', (side, side), image)) for image in raw])


def logits(net, images, from_hub=False):
    with torch.no_grad(): out = net(prepared_by_timm(net, images) if from_hub else prepared(images))
    return getattr(out, 'logits', out)


def write(net, path, kind):
    """A file in one of the layouts in which weights are passed on."""
    state = net.state_dict()
    if kind == 'state_dict': torch.save(state, path)
    elif kind == 'parallel': torch.save({'model_state_dict': {f'module.{k}': v for k, v in state.items()}, 'epoch': 3}, path)
    elif kind == 'lightning': torch.save({'state_dict': {f'model.{k}': v for k, v in state.items()}, 'optimizer_states': [{'state': {0: {'step': torch.tensor(1.)}}}]}, path)
    elif kind == 'pretrained': net.save_pretrained(path, max_shard_size='20KB')
    elif kind == 'hub':
        from timm.models import save_for_hf
        save_for_hf(net, path)
    elif kind == 'shards':
        path.mkdir()
        names = list(state)
        files = {f'pytorch_model-{i}.bin': names[i::2] for i in range(2)}
        for file, part in files.items(): torch.save({k: state[k] for k in part}, path / file)
        (path / 'pytorch_model.bin.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': {k: f for f, part in files.items() for k in part}}))
    else: raise ValueError(kind)


def make(network, jobs):
    for job in jobs:
        net = randomise(network(job['network']))
        torch.save(logits(net, job['images'], from_hub='hub' in job['files'].values()), job['logits'])
        for path, kind in job['files'].items(): write(net, pathlib.Path(path), kind)
        for resized in job.get('resized', []):  # as timm resizes
            from timm.models.vision_transformer import checkpoint_filter_fn
            other = network(job['network'], resized['image'], resized['patch'])
            other.load_state_dict(checkpoint_filter_fn(net.state_dict(), other))
            torch.save(logits(other.eval(), resized['images']), resized['logits'])


def difference(a, b): return ((a - b).abs().max() / b.abs().max()).item()


def load(network, jobs):
    """Compares converted files, and logits of npu_tool predict, with the logits of `make`."""
    import numpy
    out = {}
    for job in jobs:
        expected = torch.load(job['logits'])
        if 'predicted' in job: out[job['name']] = difference(torch.from_numpy(numpy.load(job['predicted'])), expected)
        if 'file' in job:
            if job['file'].endswith('.safetensors'):
                from safetensors.torch import load_file
                state = load_file(job['file'])
            else: state = torch.load(job['file'], weights_only=True)
            net = network(job['network'], **job.get('options', {})).eval()
            net.load_state_dict(state, strict=True)
            out[job['name']] = difference(logits(net, job['images']), expected)
    return out


def groups_of(net):
    """As no_decay: parameters with at most one dimension and biases are not decayed."""
    bare = {name for name, p in net.named_parameters() if p.dim() <= 1 or name.endswith('bias')}
    return [{'params': [p for name, p in net.named_parameters() if (name in bare) is chosen]} for chosen in (False, True)]


def train(network, jobs):
    """The losses of further steps on one batch, and the history, epoch and best accuracy of the files."""
    out = {}
    for job in jobs:
        saved = torch.load(job['file'], weights_only=True)
        history = torch.load(job['history'], weights_only=True)
        net = network(job['network'])
        net.load_state_dict(saved['model_state_dict'], strict=True)
        optimizer = {'sgd': torch.optim.SGD, 'adamw': torch.optim.AdamW}[job['optimizer']](groups_of(net) if job['no_decay'] else net.parameters(), lr=7.)
        optimizer.load_state_dict(saved['optimizer_state_dict'])
        x, labels = prepared(job['images']), torch.tensor(job['labels'])
        losses = []
        for _ in range(job['steps']):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net.train()(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        out[job['name']] = {'losses': losses, 'history': history, 'epoch': saved['epoch'], 'best_accuracy': saved['best_accuracy']}
    return out


def published(network, jobs):
    """[network, name of the weights, whether they are the default, address] of each set of weights of these networks."""
    from torchvision.models import get_model_weights
    return [[name, weights.name, weights == get_model_weights(name).DEFAULT, weights.url] for name in jobs for weights in get_model_weights(name)]


if __name__ == '__main__':
    what, library, path = sys.argv[1:]
    print(json.dumps({'make': make, 'load': load, 'train': train, 'published': published}[what](NETWORKS[library], json.loads(pathlib.Path(path).read_text()))))
