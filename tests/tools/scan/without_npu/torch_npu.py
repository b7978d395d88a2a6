"""torch_npu on a machine without an NPU: what a rewritten project asks of it."""
import types

import torch

torch.npu = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
