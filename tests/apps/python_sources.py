"""Networks of transformers and timm, and adapters of PEFT, with random weights, for model_source_test.py: python_sources.py make|compare FOLDER JOBS.json

  make      writes the files of every case, and the logits that they give in Python
  compare   reads logits and TorchScript files that npu_tool wrote, and compares their logits with those of `make`

Prints one JSON document."""
import json
import pathlib
import sys
import warnings

import torch

warnings.simplefilter('ignore')
torch.manual_seed(0)
torch.set_num_threads(1)
import any_torchvision  # noqa: E402, F401

TEXT = torch.tensor([[3, 7, 1, 30, 2, 9, 4, 50]])
LLAMA = dict(vocab_size=96, max_position_embeddings=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=64, intermediate_size=128)


def randomise(net):
    """Every tensor differs from its neighbours, and the logits from one another."""
    with torch.no_grad():
        for value in net.parameters(): value.add_(torch.randn_like(value) * 0.1)
    return net.eval()


def llama():
    import transformers as t
    return randomise(t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)))


def gpt2():
    import transformers as t
    return randomise(t.GPT2LMHeadModel(t.GPT2Config(vocab_size=96, n_positions=64, n_layer=2, n_head=4, n_embd=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None)))


def vit():
    import timm
    return randomise(timm.models.VisionTransformer(32, 8, embed_dim=32, depth=2, num_heads=2, num_classes=10))


def text_logits(net):
    with torch.no_grad(): return net(TEXT).logits[0]


def image_of(folder):
    pixels = torch.frombuffer(bytearray((folder / 'image.rgb').read_bytes()), dtype=torch.uint8).reshape(1, 32, 32, 3).permute(0, 3, 1, 2).float() / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (pixels - mean[:, None, None]) / std[:, None, None]


def image_logits(net, folder):
    with torch.no_grad(): return net(image_of(folder))


def adapted(folder, name, **options):
    """An adapter of PEFT with random A and B, and the logits with it."""
    import peft
    net = llama()
    net.load_state_dict(torch.load(folder / 'llama.pt', weights_only=True))
    tuned = peft.get_peft_model(net, peft.LoraConfig(task_type='CAUSAL_LM', r=4, lora_alpha=8, **options)).eval()
    with torch.no_grad():
        for key, value in tuned.named_parameters():
            if 'lora_' in key: value.normal_(std=0.2)
    tuned.save_pretrained(folder / name)
    return text_logits(tuned)


def nano(net):
    """The state of transformers' network as that of nanoGPT's compiled network: the same names, with the matrices of torch.nn.Linear."""
    turned = ('attn.c_attn.weight', 'attn.c_proj.weight', 'mlp.c_fc.weight', 'mlp.c_proj.weight')
    return {'_orig_mod.' + k: v.t().contiguous() if k.endswith(turned) else v for k, v in net.state_dict().items()}


def make(folder, _):
    out, net = {}, llama()
    net.save_pretrained(folder / 'llama')
    torch.save(net.state_dict(), folder / 'llama.pt')
    out['llama'] = text_logits(net)
    try:
        out['attention adapter'] = adapted(folder, 'attention', target_modules=['q_proj', 'v_proj'])
        out['rslora adapter'] = adapted(folder, 'rslora', target_modules='all-linear', use_rslora=True)
    except ImportError:
        pass
    net = gpt2()
    out['nanogpt'] = text_logits(net)
    torch.save({'model': nano(net), 'optimizer': {'state': {0: {'step': torch.tensor(1.)}}}, 'model_args': {'n_head': 4, 'n_layer': 2, 'n_embd': 64, 'block_size': 64, 'bias': True, 'vocab_size': 96},
                'iter_num': 3, 'best_val_loss': torch.tensor(4.)}, folder / 'nanogpt.pt')
    with torch.no_grad():  # with biases of 0, it computes what a network without biases does
        for name, value in net.named_parameters():
            if name.endswith('.bias'): value.zero_()
    out['nanogpt without biases'] = text_logits(net)
    torch.save({'model': {k: v for k, v in nano(net).items() if not k.endswith('.bias')}, 'model_args': {'n_head': 4, 'bias': False}}, folder / 'unbiased.pt')
    plain, average = vit(), vit()
    torch.save({'epoch': 2, 'arch': 'vit', 'state_dict': plain.state_dict(), 'state_dict_ema': average.state_dict()}, folder / 'timm.pth.tar')
    torch.save(plain.state_dict(), folder / 'old.pth', _use_new_zipfile_serialization=False)
    # timm chooses between the plain and the averaged weights.
    import timm
    from timm.models import load_state_dict
    for ema in (True, False):
        chosen = timm.models.VisionTransformer(32, 8, embed_dim=32, depth=2, num_heads=2, num_classes=10).eval()
        chosen.load_state_dict(load_state_dict(str(folder / 'timm.pth.tar'), use_ema=ema))
        out[f'timm.pth.tar {"ema" if ema else "plain"}'] = image_logits(chosen, folder)
    out['old.pth'] = image_logits(plain, folder)
    torch.save(out, folder / 'logits.pt')
    return {'cases': list(out), 'parameters': sum(p.numel() for p in llama().parameters())}


def difference(a, b): return ((a - b).abs().max() / b.abs().max()).item()


def compare(folder, jobs):
    import numpy
    expected = torch.load(folder / 'logits.pt')
    out = {}
    for job in jobs:
        path = job['file']
        if path.endswith('.npy'): found = torch.from_numpy(numpy.load(path))
        elif path.endswith('.safetensors'):  # weights of a llama, with the names of transformers
            from safetensors.torch import load_file
            net = llama()
            net.load_state_dict(load_file(path), strict=True)
            found = text_logits(net.eval())
        else:
            with torch.no_grad(): found = torch.jit.load(path).eval()(image_of(folder) if job['images'] else TEXT)
            if not job['images']: found = found[0]
        assert found.shape == expected[job['case']].shape, (job, found.shape)
        out[path] = difference(found, expected[job['case']])
    return out


if __name__ == '__main__':
    what, folder, jobs = sys.argv[1:]
    print(json.dumps({'make': make, 'compare': compare}[what](pathlib.Path(folder), json.loads(pathlib.Path(jobs).read_text()))))
