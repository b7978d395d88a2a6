#include "models/families.hpp"
#include "npu_train/models/internvl.hpp"

namespace npu_train::detail {
namespace {

void add_internvl(ModelRegistry& registry) {
  const auto add = [&](const std::string& name, const std::string& doc, const InternVlOptions& defaults = {}) {
    registry.add(
        name, doc, [name](const InternVlOptions& options) { return internvl(options, name); }, defaults);
  };
  add("internvl", "InternVL of configurable size: vision transformer, projector, Llama");
  add("internvl_tiny", "InternVL for bytes and images of 32 x 32: layers 2, dim 64 in both networks", internvl_tiny_options());
}

}  // namespace

ModelFamily internvl_family() { return {.name = "internvl", .add = add_internvl}; }

}  // namespace npu_train::detail
