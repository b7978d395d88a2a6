// The costly headers of libtorch, once for every heavy room and test.
#pragma once
#include <torch/nn.h>
#include <torch/types.h>
