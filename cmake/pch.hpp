// The costly headers of libtorch that most sources include, once for every heavy room and test. Not torch/nn.h: GCC instantiates the pending
// templates of a precompiled header in every source, and those of torch::nn cost each of them 4 s. cloneable.h comes before any `using
// namespace npu_train`, after which its `Device` would have two meanings.
#pragma once
#include <torch/nn/cloneable.h>
#include <torch/types.h>
