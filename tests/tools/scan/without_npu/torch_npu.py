"""torch_npu on a machine without an NPU, with the functions that a rewritten project calls."""
import types

import torch

torch.npu = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
