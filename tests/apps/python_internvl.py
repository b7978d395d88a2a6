"""InternVL in plain PyTorch, after the published modeling_internvl_chat.py and modeling_intern_vit.py, for internvl_test.py."""
import torch
import torch.nn.functional as F
from torch import nn

import python_llama
from python_encoders import put, split_projections

torch.backends.mha.set_fastpath_enabled(False)
IGNORED = -100


class VisionLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.ls1, self.ls2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0] * self.ls1
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)))) * self.ls2


def pixel_shuffle(x, scale_factor):
    """As published, with ps_version v2."""
    n, w, h, c = x.size()
    x = x.view(n, w, int(h * scale_factor), int(c / scale_factor))
    x = x.permute(0, 2, 1, 3).contiguous()
    x = x.view(n, int(h * scale_factor), int(w * scale_factor), int(c / (scale_factor * scale_factor)))
    return x.permute(0, 2, 1, 3).contiguous()


class InternVl(nn.Module):
    def __init__(self, image_size, patch_size, vision_layers, vision_heads, vision_dim, image_token, **language):
        super().__init__()
        self.image_token, self.sizes = image_token, language
        self.first, self.positions = nn.Parameter(torch.randn(vision_dim)), nn.Embedding((image_size // patch_size) ** 2 + 1, vision_dim)
        self.patch = nn.Conv2d(3, vision_dim, patch_size, stride=patch_size)
        self.layers = nn.ModuleList(VisionLayer(vision_dim, vision_heads) for _ in range(vision_layers))
        self.mlp1 = nn.Sequential(nn.LayerNorm(4 * vision_dim), nn.Linear(4 * vision_dim, language['dim']), nn.GELU(), nn.Linear(language['dim'], language['dim']))
        self.language = {name: nn.Parameter(value) for name, value in python_llama.base(language, 5).items()}
        for name, value in self.language.items(): self.register_parameter(name.replace('.', '_'), value)

    def extract_feature(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1) + self.positions.weight
        for layer in self.layers: x = layer(x)
        x = x[:, 1:, :]
        side = int(x.shape[1] ** 0.5)
        x = pixel_shuffle(x.reshape(x.shape[0], side, side, -1), 0.5)
        return self.mlp1(x.reshape(x.shape[0], -1, x.shape[-1]))

    def forward(self, images, ids):
        vectors = self.extract_feature(images)
        n, t = ids.shape
        x = self.language['model.embed_tokens.weight'][ids].reshape(n * t, -1)
        x = x.clone()
        x[ids.reshape(-1) == self.image_token] = vectors.reshape(-1, x.shape[-1])
        return python_llama.logits_of_vectors(self.language, {}, 0, self.sizes, x.view(n, t, -1))

    def loss(self, images, ids, targets): return F.cross_entropy(self(images, ids).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    def ours(self):
        """Its state under the names of npu_train."""
        state = {'vision.class_embedding': self.first, 'vision.position_embedding.weight': self.positions.weight}
        put(state, 'vision.patch', self.patch)
        for i, layer in enumerate(self.layers):
            at = f'vision.blocks.{i}.'
            for name, part in split_projections(layer.attention).items(): put(state, f'{at}attention.{name}_proj', part)
            for name, part in (('attention.proj', layer.attention.out_proj), ('ln_1', layer.norm1), ('ln_2', layer.norm2), ('mlp.fc1', layer.fc1), ('mlp.fc2', layer.fc2)): put(state, at + name, part)
            state |= {f'{at}scale_1': layer.ls1, f'{at}scale_2': layer.ls2}
        for name, part in zip(('norm', 'fc1', 'fc2'), (self.mlp1[0], self.mlp1[1], self.mlp1[3])): put(state, f'projector.{name}', part)
        for theirs, value in self.language.items():
            name = theirs
            for a, b in (('model.embed_tokens', 'token_embedding'), ('model.layers', 'blocks'), ('model.norm', 'norm'), ('lm_head', 'head'), ('self_attn.o_proj', 'attention.proj'), ('self_attn', 'attention'),
                         ('input_layernorm', 'norm_1'), ('post_attention_layernorm', 'norm_2'), ('_proj.weight' if '.mlp.' in theirs else '\0', '.weight')): name = name.replace(a, b)
            state[f'language.{name}'] = value
        return {name: value.detach().contiguous() for name, value in state.items()}
