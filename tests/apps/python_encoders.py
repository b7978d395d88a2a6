"""Encoders in plain PyTorch, with weights under the names of Hugging Face's transformers: what bert_test.py and clip_test.py compare with."""
import torch
from torch import nn

torch.backends.mha.set_fastpath_enabled(False)


def layer(dim, heads, norm_first, activation, eps):
    return nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0, activation=activation, layer_norm_eps=eps, batch_first=True, norm_first=norm_first)


def randomise(net):
    """Every tensor differs from its neighbours, and the outputs from one another."""
    with torch.no_grad():
        for value in net.parameters(): value.add_(torch.randn_like(value) * 0.1)
    return net


def split_projections(attention):
    """{q: {weight, bias}, ...} of an nn.MultiheadAttention."""
    parts = zip('qkv', attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3))
    return {name: {'weight': weight, 'bias': bias} for name, weight, bias in parts}


def put(state, name, module):
    for part in ('weight', 'bias'): state[f'{name}.{part}'] = module[part] if isinstance(module, dict) else getattr(module, part)


class Bert(nn.Module):
    """nn.TransformerEncoderLayer is the block of BERT: post-norm, GELU by erf."""

    def __init__(self, vocab_size, context, layers, heads, dim, num_classes=0):
        super().__init__()
        self.tokens, self.positions, self.types = nn.Embedding(vocab_size, dim), nn.Embedding(context, dim), nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.layers = nn.ModuleList(layer(dim, heads, False, 'gelu', 1e-12) for _ in range(layers))
        self.transform = nn.Linear(dim, dim)  # also serves as the pooler
        if num_classes: self.classifier = nn.Linear(dim, num_classes)
        else: self.transform_norm, self.bias = nn.LayerNorm(dim, eps=1e-12), nn.Parameter(torch.zeros(vocab_size))

    def forward(self, ids, mask, types):
        x = self.norm(self.tokens(ids) + self.types(types) + self.positions.weight[:ids.shape[1]])
        for block in self.layers: x = block(x, src_key_padding_mask=mask == 0)
        if hasattr(self, 'classifier'): return self.classifier(torch.tanh(self.transform(x[:, 0])))
        return self.transform_norm(nn.functional.gelu(self.transform(x))) @ self.tokens.weight.T + self.bias

    def huggingface(self):
        """The state of BertForMaskedLM, or of BertForSequenceClassification."""
        state = {f'bert.embeddings.{name}_embeddings.weight': table.weight for name, table in (('word', self.tokens), ('position', self.positions), ('token_type', self.types))}
        put(state, 'bert.embeddings.LayerNorm', self.norm)
        for i, block in enumerate(self.layers):
            at = f'bert.encoder.layer.{i}.'
            for theirs, part in zip(('query', 'key', 'value'), split_projections(block.self_attn).values()): put(state, f'{at}attention.self.{theirs}', part)
            for theirs, module in (('attention.output.dense', block.self_attn.out_proj), ('attention.output.LayerNorm', block.norm1), ('intermediate.dense', block.linear1),
                                   ('output.dense', block.linear2), ('output.LayerNorm', block.norm2)): put(state, at + theirs, module)
        if hasattr(self, 'classifier'):
            put(state, 'bert.pooler.dense', self.transform)
            put(state, 'classifier', self.classifier)
        else:
            put(state, 'cls.predictions.transform.dense', self.transform)
            put(state, 'cls.predictions.transform.LayerNorm', self.transform_norm)
            state |= {'cls.predictions.bias': self.bias, 'cls.predictions.decoder.weight': self.tokens.weight, 'cls.predictions.decoder.bias': self.bias}
        return {name: value.detach().contiguous() for name, value in state.items()}


class Tower(nn.Module):
    """Pre-norm blocks with quick GELU."""

    def __init__(self, dim, heads, layers, projection):
        super().__init__()
        self.layers = nn.ModuleList(layer(dim, heads, True, lambda x: x * torch.sigmoid(1.702 * x), 1e-5) for _ in range(layers))
        self.projection = nn.Linear(dim, projection, bias=False)

    def run(self, x, mask=None):
        for block in self.layers: x = block(x, src_mask=mask)
        return x

    def project(self, x): return nn.functional.normalize(self.projection(x), dim=-1)

    def put_blocks(self, state, tower):
        for i, block in enumerate(self.layers):
            at = f'{tower}_model.encoder.layers.{i}.'
            for name, part in split_projections(block.self_attn).items(): put(state, f'{at}self_attn.{name}_proj', part)
            for theirs, module in (('self_attn.out_proj', block.self_attn.out_proj), ('layer_norm1', block.norm1), ('layer_norm2', block.norm2),
                                   ('mlp.fc1', block.linear1), ('mlp.fc2', block.linear2)): put(state, at + theirs, module)


class Vision(Tower):
    def __init__(self, size, patch, dim, heads, layers, projection):
        super().__init__(dim, heads, layers, projection)
        self.first, self.positions = nn.Parameter(torch.randn(dim) * 0.1), nn.Embedding((size // patch) ** 2 + 1, dim)
        self.patch = nn.Conv2d(3, dim, patch, stride=patch, bias=False)
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1) + self.positions.weight
        return self.project(self.after(self.run(self.before(x))[:, 0]))


class Text(Tower):
    def __init__(self, vocab_size, context, dim, heads, layers, projection):
        super().__init__(dim, heads, layers, projection)
        self.tokens, self.positions, self.norm = nn.Embedding(vocab_size, dim), nn.Embedding(context, dim), nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        x = self.run(x, torch.full((ids.shape[1],) * 2, -torch.inf).triu(1))
        return self.project(self.norm(x[torch.arange(len(ids)), (ids == 0).int().argmax(1)]))


class Clip(nn.Module):
    """The end of a text is token 0."""

    def __init__(self, image_size, patch_size, vision_layers, vision_heads, vision_dim, vocab_size, context, text_layers, text_heads, text_dim, projection):
        super().__init__()
        self.vision = Vision(image_size, patch_size, vision_dim, vision_heads, vision_layers, projection)
        self.text = Text(vocab_size, context, text_dim, text_heads, text_layers, projection)
        self.logit_scale = nn.Parameter(torch.tensor(2.6592600))

    def forward(self, images, ids): return self.vision(images), self.text(ids)

    def loss(self, images, ids):
        a, b = self(images, ids)
        logits, own = a @ b.T * self.logit_scale.clamp(max=4.6051702).exp(), torch.arange(len(a))
        return (nn.functional.cross_entropy(logits, own) + nn.functional.cross_entropy(logits.T, own)) / 2

    def huggingface(self):
        """The state of CLIPModel."""
        v, t = self.vision, self.text
        state = {'logit_scale': self.logit_scale, 'visual_projection.weight': v.projection.weight, 'text_projection.weight': t.projection.weight,
                 'vision_model.embeddings.class_embedding': v.first, 'vision_model.embeddings.patch_embedding.weight': v.patch.weight,
                 'vision_model.embeddings.position_embedding.weight': v.positions.weight, 'text_model.embeddings.token_embedding.weight': t.tokens.weight,
                 'text_model.embeddings.position_embedding.weight': t.positions.weight}
        put(state, 'vision_model.pre_layrnorm', v.before)
        put(state, 'vision_model.post_layernorm', v.after)
        put(state, 'text_model.final_layer_norm', t.norm)
        v.put_blocks(state, 'vision')
        t.put_blocks(state, 'text')
        return {name: value.detach().contiguous() for name, value in state.items()}


def train(net, steps, lr, weight_decay, clip):
    """Trains the network for one step with each function in `steps`, which computes the loss. Returns the losses."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    for loss_of in steps:
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses
