"""Must be imported before packages that use torchvision. The operators of torchvision belong to one version of torch, but its networks need
none of them, and other packages only import it."""
import sys

import torch

try:
    import torchvision
except Exception:
    for module in [name for name in sys.modules if name.startswith('torchvision')]: del sys.modules[module]
    operators = torch.library.Library('torchvision', 'DEF')
    for name in ('nms', 'qnms'): operators.define(name + '(Tensor boxes, Tensor scores, float threshold) -> Tensor')
