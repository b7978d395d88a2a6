#include "models/families.hpp"
#include "npu_train/models/internvl.hpp"

namespace npu_train::detail {
namespace {

void add_internvl(ModelRegistry& registry) {
  add_network(registry, internvl, "internvl", "InternVL of configurable size: vision transformer, projector, Llama");
  add_network(registry, internvl, "internvl_tiny", "InternVL for bytes and images of 32 x 32: layers 2, dim 64 in both networks",
              internvl_tiny_options());
}

}  // namespace

ModelFamily internvl_family() { return {.name = "internvl", .add = add_internvl}; }

}  // namespace npu_train::detail
