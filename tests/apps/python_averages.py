"""PyTorch's stochastic weight averaging over the checkpoints of a run: python_averages.py JOB.json. Prints one JSON document: the largest
difference between the averages, and the learning rates from the start of the averages on."""
import json
import sys

import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import SWALR, AveragedModel

with open(sys.argv[1]) as file: job = json.load(file)


class Weights(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.names = list(tensors)
        self.values = torch.nn.ParameterList([torch.nn.Parameter(value.clone()) for value in tensors.values()])


states = [load_file(path) for path in job['checkpoints']]
network = Weights(states[0])
averaged = AveragedModel(network)
for state in states:
    with torch.no_grad():
        for name, value in zip(network.names, network.values): value.copy_(state[name])
    averaged.update_parameters(network)
ours = load_file(job['averages'])
difference = max((ours['average/' + name] - value).abs().max().item() for name, value in zip(network.names, averaged.module.values))

optimizer = torch.optim.SGD(network.parameters(), lr=job['lr'])
scheduler = SWALR(optimizer, swa_lr=job['swa_lr'], anneal_epochs=job['anneal_epochs'], anneal_strategy='cos')
rates = []
for _ in job['checkpoints']:
    rates.append(optimizer.param_groups[0]['lr'])
    optimizer.step()
    scheduler.step()
print(json.dumps({'difference': difference, 'rates': rates, 'tensors': len(network.names)}))
