"""Language models of transformers with random weights, for language_model_test.py: python_language_models.py make|load|train JOBS.json

  make   writes the files of each network, its logits for some texts, and the tokens that it adds to them greedily
  load   reads files that npu_tool wrote, and compares the logits with those of `make`
  train  trains on the samples of a file of tokens, in their order, and gives the losses

Prints one JSON document by the names of the jobs."""
import json
import pathlib
import sys
import warnings

import torch

warnings.simplefilter('ignore')
torch.manual_seed(0)
torch.set_num_threads(1)
import any_torchvision  # noqa: E402, F401


def gpt2(vocab_size, context, layers, heads, dim):
    import transformers as t
    return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=vocab_size, n_positions=context, n_layer=layers, n_head=heads, n_embd=dim, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                          bos_token_id=None, eos_token_id=None))


def llama(vocab_size, context, layers, heads, kv_heads, dim, hidden, rope_theta, norm_eps, tie_embeddings=False):
    import transformers as t
    return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=vocab_size, max_position_embeddings=context, num_hidden_layers=layers, num_attention_heads=heads,
                                            num_key_value_heads=kv_heads, hidden_size=dim, intermediate_size=hidden, rms_norm_eps=norm_eps,
                                            rope_parameters={'rope_type': 'default', 'rope_theta': rope_theta},
                                            tie_word_embeddings=tie_embeddings, bos_token_id=None, eos_token_id=None))


NETWORKS = {'gpt2': gpt2, 'llama': llama}


def network(job): return NETWORKS[job['network']](**job['options'])


def randomise(net):
    """Every tensor differs from its neighbours, and the logits from one another."""
    with torch.no_grad():
        for value in net.parameters(): value.add_(torch.randn_like(value) * 0.1)
    return net.eval()


def logits(net, texts):
    with torch.no_grad(): return [net(torch.tensor([text])).logits[0] for text in texts]


def make(job):
    net = randomise(network(job))
    folder = pathlib.Path(job['folder'])
    torch.save(net.state_dict(), folder / 'state.bin')
    net.save_pretrained(folder / 'pretrained')
    torch.save(logits(net, job['texts']), folder / 'logits.pt')
    added = job['options']['context'] - max(map(len, job['texts']))
    greedy = [net.generate(torch.tensor([text]), attention_mask=torch.ones(1, len(text)), max_new_tokens=added, do_sample=False, pad_token_id=0)[0, len(text):].tolist()
              for text in job['texts']]
    return {'added': added, 'greedy': greedy}


def difference(a, b): return ((a - b).abs().max() / b.abs().max()).item()


def load(job):
    """Compares converted files, or logits of npu_tool generate, with the logits of `make`."""
    import numpy
    expected = torch.load(pathlib.Path(job['folder']) / 'logits.pt')
    if 'logits' in job: found = [torch.from_numpy(numpy.load(path)) for path in job['logits']]
    else:
        net = network(job)
        missing, unexpected = net.load_state_dict(torch.load(job['file'], weights_only=True), strict=False)
        assert missing in ([], ['lm_head.weight']) and not unexpected, (missing, unexpected)  # the head is the token embedding
        found = logits(net.eval(), job['texts'])
    assert [f.shape for f in found] == [e.shape for e in expected]
    return max(map(difference, found, expected))


def train(job):
    net = network(job)
    net.load_state_dict(torch.load(pathlib.Path(job['folder']) / 'state.bin', weights_only=True))
    tokens = torch.frombuffer(bytearray(pathlib.Path(job['tokens']).read_bytes()), dtype=torch.int16).long()  # all are below 32768
    length, batch = job['length'], job['batch']
    optimizer = torch.optim.AdamW(net.parameters(), lr=job['lr'], weight_decay=job['weight_decay'])
    losses = []
    for step in range(job['steps']):
        at = [i * length for i in range(step * batch, (step + 1) * batch)]
        x, y = (torch.stack([tokens[i + shift:i + shift + length] for i in at]) for shift in (0, 1))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net.train()(x).logits.flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), job['clip'])
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == '__main__':
    what, path = sys.argv[1:]
    print(json.dumps({job['name']: {'make': make, 'load': load, 'train': train}[what](job) for job in json.loads(pathlib.Path(path).read_text())}))
