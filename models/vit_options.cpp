#include "vit_options.hpp"

namespace npu_train {
namespace {

VitOptions sized(int64_t patch, int64_t dim, int64_t depth, int64_t heads) {
  VitOptions o;
  o.patch_size = patch;
  o.dim = dim;
  o.depth = depth;
  o.heads = heads;
  return o;
}

}  // namespace

const ConfigTable<VitOptions>& VitOptions::config_table() {
  static const auto table = detail::vit_fields<VitOptions>("model vit");
  return table;
}

VitOptions vit_tiny_options() { return sized(16, 192, 12, 3); }
VitOptions vit_small_options() { return sized(16, 384, 12, 6); }
VitOptions vit_b16_options() { return sized(16, 768, 12, 12); }
VitOptions vit_b32_options() { return sized(32, 768, 12, 12); }
VitOptions vit_l16_options() { return sized(16, 1024, 24, 16); }

VitOptions vit_tiny_cifar10_options() {
  VitOptions o = sized(4, 192, 12, 3);
  o.image_size = 32;
  o.num_classes = 10;
  return o;
}

}  // namespace npu_train
