"""A Llama with low-rank adapters in plain PyTorch, with the names of Hugging Face and of PEFT, for lora_test.py and language_model_test.py."""
import json
import math
import pathlib

import torch
import torch.nn.functional as F

SIZES = {'vocab_size': 61, 'context': 24, 'layers': 2, 'heads': 4, 'kv_heads': 2, 'dim': 24, 'hidden': 40, 'rope_theta': 300, 'norm_eps': 1e-3}
PREFIX = 'base_model.model.'


def base(sizes, seed):
    """Random weights of a LlamaForCausalLM."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=g) * 0.2
    d, kv = sizes['dim'], sizes['dim'] // sizes['heads'] * sizes['kv_heads']
    out = {'model.embed_tokens.weight': draw(sizes['vocab_size'], d), 'model.norm.weight': 1 + draw(d), 'lm_head.weight': draw(sizes['vocab_size'], d)}
    for i in range(sizes['layers']):
        at = f'model.layers.{i}.'
        for name, rows, columns in (('self_attn.q_proj', d, d), ('self_attn.k_proj', kv, d), ('self_attn.v_proj', kv, d), ('self_attn.o_proj', d, d),
                                    ('mlp.gate_proj', sizes['hidden'], d), ('mlp.up_proj', sizes['hidden'], d), ('mlp.down_proj', d, sizes['hidden'])):
            out[f'{at}{name}.weight'] = draw(rows, columns)
        for name in ('input_layernorm', 'post_attention_layernorm'): out[f'{at}{name}.weight'] = 1 + draw(d)
    return out


def new_adapter(weights, rank, modules, seed):
    """As PEFT begins: A kaiming_uniform(a=sqrt(5)), B zero."""
    torch.manual_seed(seed)
    out = {}
    for name, weight in weights.items():
        module = name.removesuffix('.weight')
        if module.split('.')[-1] not in modules: continue
        out[f'{PREFIX}{module}.lora_A.weight'] = torch.nn.init.kaiming_uniform_(torch.empty(rank, weight.shape[1]), a=5 ** 0.5)
        out[f'{PREFIX}{module}.lora_B.weight'] = torch.zeros(weight.shape[0], rank)
    return out


def write_adapter(folder, adapter, rank, alpha, **more):
    folder = pathlib.Path(folder)
    folder.mkdir()
    torch.save(adapter, folder / 'adapter_model.bin')
    (folder / 'adapter_config.json').write_text(json.dumps({'peft_type': 'LORA', 'r': rank, 'lora_alpha': alpha, 'target_modules': sorted({n.split('.')[-3] for n in adapter})} | more))


def frequencies(sizes, size):
    """The frequencies of rotary positions, scaled in the three cases in which the report on Llama 3.1 scales them."""
    out = sizes['rope_theta'] ** (-torch.arange(0, size, 2) / size)
    s = sizes.get('rope_scaling')
    if s is None: return out
    for i, f in enumerate(out.tolist()):
        wavelength = 2 * math.pi / f
        if wavelength > s['original_context'] / s['low_freq_factor']: out[i] = f / s['factor']
        elif wavelength >= s['original_context'] / s['high_freq_factor']:
            smooth = (s['original_context'] / wavelength - s['low_freq_factor']) / (s['high_freq_factor'] - s['low_freq_factor'])
            out[i] = (1 - smooth) * f / s['factor'] + smooth * f
    return out


def logits(weights, adapter, scale, sizes, tokens):
    """The logits of token ids [batch, tokens]."""
    return logits_of_vectors(weights, adapter, scale, sizes, weights['model.embed_tokens.weight'][tokens])


def logits_of_vectors(weights, adapter, scale, sizes, x):
    """The logits of the tokens' vectors [batch, tokens, dim]."""
    def linear(module, x):
        y = F.linear(x, weights[module + '.weight'])
        a, b = (adapter.get(f'{PREFIX}{module}.lora_{half}.weight') for half in 'AB')
        return y if a is None else y + scale * F.linear(F.linear(x, a), b)

    def norm(name, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + sizes['norm_eps']) * weights[name + '.weight']

    n, t, _ = x.shape
    size = sizes['dim'] // sizes['heads']
    angles = torch.outer(torch.arange(t), frequencies(sizes, size))
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

    def rotated(x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    for i in range(sizes['layers']):
        at = f'model.layers.{i}.'
        h = norm(at + 'input_layernorm', x)
        q, k, v = (linear(f'{at}self_attn.{p}_proj', h).view(n, t, -1, size).transpose(1, 2) for p in 'qkv')
        times = sizes['heads'] // sizes['kv_heads']
        q, k, v = rotated(q), rotated(k).repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, -1)
        x = x + linear(at + 'self_attn.o_proj', y)
        h = norm(at + 'post_attention_layernorm', x)
        x = x + linear(at + 'mlp.down_proj', F.silu(linear(at + 'mlp.gate_proj', h)) * linear(at + 'mlp.up_proj', h))
    return linear('lm_head', norm('model.norm', x))


def train(weights, adapter, scale, sizes, tokens, steps, batch, length, lr, weight_decay):
    """Losses of AdamW on the adapter alone, on the samples in their order; changes the adapter."""
    for value in adapter.values(): value.requires_grad_()
    optimizer = torch.optim.AdamW(adapter.values(), lr=lr, weight_decay=weight_decay)
    losses = []
    for step in range(steps):
        at = [i * length for i in range(step * batch, (step + 1) * batch)]
        x, y = (torch.stack([tokens[i + shift:i + shift + length] for i in at]) for shift in (0, 1))
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(weights, adapter, scale, sizes, x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for value in adapter.values(): value.requires_grad_(False)
    return losses
