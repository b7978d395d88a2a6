"""GLM in plain PyTorch, written from the published description of ChatGLM-6B, with weights under its names: what glm_test.py compares with.
Masks and positions are made text by text; there is no cache."""
import math

import torch
from torch import nn


def rotate(x, position):
    """x [heads, tokens, size] by position [tokens], with the published frequencies, which are rounded to fp16."""
    half = x.shape[-1] // 2
    frequency = (1 / 10000 ** (torch.arange(0, 2 * half, 2).float() / (2 * half))).half().float()
    angle = torch.cat([position.float()[:, None] * frequency] * 2, -1)
    return x * angle.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angle.sin()


class Attention(nn.Module):
    def __init__(self, dim, heads, layer):
        super().__init__()
        self.heads, self.layer = heads, layer
        self.query_key_value, self.dense = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, position, block_position, hidden):
        q, k, v = self.query_key_value(x).view(x.shape[0], self.heads, -1).transpose(0, 1).chunk(3, -1)
        q, k = (torch.cat([rotate(part, at) for part, at in zip(t.chunk(2, -1), (position, block_position))], -1) for t in (q, k))
        scores = (q / (math.sqrt(q.shape[-1]) * (self.layer + 1))) @ k.transpose(1, 2)
        weights = torch.softmax(scores.masked_fill(hidden, -10000).float() * (self.layer + 1), -1)
        return self.dense((weights @ v).transpose(0, 1).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, dim, heads, layer, layers, hidden, eps):
        super().__init__()
        self.alpha = math.sqrt(2 * layers)
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(dim, eps), nn.LayerNorm(dim, eps)
        self.attention = Attention(dim, heads, layer)
        self.mlp = nn.ModuleDict({'dense_h_to_4h': nn.Linear(dim, hidden), 'dense_4h_to_h': nn.Linear(hidden, dim)})

    def forward(self, x, *places):
        y = self.input_layernorm(x)
        z = self.post_attention_layernorm(self.alpha * y + self.attention(y, *places))
        return self.alpha * z + self.mlp['dense_4h_to_h'](nn.functional.gelu(self.mlp['dense_h_to_4h'](z), approximate='tanh'))


class Glm(nn.Module):
    def __init__(self, vocab_size, context, layers, heads, dim, bos_token, gmask_token, mask_token, hidden=0, norm_eps=1e-5, tie_embeddings=False):
        super().__init__()
        self.bos, self.masks = bos_token, (gmask_token, mask_token)
        self.transformer = nn.ModuleDict({
            'word_embeddings': nn.Embedding(vocab_size, dim), 'final_layernorm': nn.LayerNorm(dim, norm_eps),
            'layers': nn.ModuleList(Block(dim, heads, i, layers, hidden or 4 * dim, norm_eps) for i in range(layers))})
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)
        if tie_embeddings: self.lm_head.weight = self.transformer['word_embeddings'].weight

    def places(self, text):
        """First and second position of each token, and which tokens are hidden from it."""
        count, ids = len(text), text.tolist()
        position, block, seen = torch.arange(count), torch.zeros(count, dtype=torch.long), torch.ones(count, count).tril()
        if self.bos in ids:
            length = ids.index(self.bos)
            mask = next((ids.index(m) for m in self.masks if m in ids[:length]), max(length - 1, 0))
            position[length:], block[length:], seen[:, :length] = mask, torch.arange(count - length) + 1, 1
        return position, block, seen < 0.5

    def forward(self, texts):
        """The logits of texts [texts, tokens]."""
        out = []
        for text in texts:
            places, x = self.places(text), self.transformer['word_embeddings'](text)
            for layer in self.transformer['layers']: x = layer(x, *places)
            out.append(self.lm_head(self.transformer['final_layernorm'](x)))
        return torch.stack(out)

    def greedy(self, text, count):
        with torch.no_grad():
            for _ in range(count): text = [*text, self(torch.tensor([text]))[0, -1].argmax().item()]
        return text[-count:]


def make(seed, **options):
    """Every tensor differs from its neighbours, and the logits from one another."""
    torch.manual_seed(seed)
    net = Glm(**options)
    with torch.no_grad():
        for value in net.parameters(): value.add_(torch.randn_like(value) * 0.1)
    return net.eval()
