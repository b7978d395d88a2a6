"""Encoders in plain PyTorch, with weights under the names of Hugging Face's transformers: what bert_test.py compares with."""
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
        self.transform = nn.Linear(dim, dim)  # or the pooler
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


def train(net, steps, lr, weight_decay, clip):
    """The losses of the functions in `steps`, each of the network."""
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
