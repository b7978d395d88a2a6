// The costly headers of libtorch that most sources include, once for every heavy room and test. Not torch/nn.h: GCC instantiates the
// pending templates of a precompiled header in every source, and those of torch::nn's layers cost each of them 4 s. The containers must
// come before any `using namespace npu_train`, after which their `Device` would have two meanings.
#pragma once
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>
