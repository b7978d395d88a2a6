#include "npu_train/models/torchscript.hpp"

#include "models/families.hpp"

namespace npu_train::detail {

ModelFamily torchscript_family() {
  return {.name = "torchscript", .add = [](ModelRegistry& registry) {
            registry.add<TorchScriptOptions>("torchscript", "a TorchScript module of Python, from a file", torchscript);
          }};
}

}  // namespace npu_train::detail
