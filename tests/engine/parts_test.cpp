#include "testing.hpp"

#include "npu_train/engine/parts.hpp"

#include <algorithm>

#include <torch/nn.h>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;

namespace {
struct NetOptions {
  int64_t width = 8;
  int64_t num_classes = 0;
  static const ConfigTable<NetOptions>& config_table() {
    static const auto table = ConfigTable<NetOptions>("my net")
                                  .field("width", &NetOptions::width, "width", at_least(1))
                                  .field("num_classes", &NetOptions::num_classes, "classes", at_least(0));
    return table;
  }
};
}  // namespace

TEST_CASE("the library's parts are there by name") {
  const auto parts = builtin_parts();
  for (const char* name : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vit_tiny", "vit_small", "vit_b16", "vit_b32",
                           "vit_l16", "vit_tiny_cifar10"})
    CHECK(parts.models.contains(name));
  for (const char* name : {"cifar10", "cifar100", "image_folder", "generated"}) CHECK(parts.datasets.contains(name));
  for (const char* name : {"sgd", "adam", "adamw", "lamb"}) CHECK(parts.optimizers.contains(name));
  for (const char* name : {"constant", "step", "multistep", "cosine", "linear", "polynomial", "one_cycle"})
    CHECK(parts.schedules.contains(name));
  CHECK(parts.tasks.contains("classifier"));
}

TEST_CASE("a part of one's own has a name and keys like any other") {
  auto parts = builtin_parts();
  parts.models.add<NetOptions>("my_net", "mine", [](const NetOptions& o) {
    return npu_train::as_model(
        torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(12, o.width), torch::nn::Linear(o.width, o.num_classes)));
  });
  const auto config = bind_config(parse_yaml("model: {name: my_net, width: 5}", "t"), parts);
  DatasetInfo info;
  info.num_classes = 3;
  info.shape = {3, 2, 2};
  const auto part = with_data_defaults(config.model, info, 0, parts);
  const auto model = parts.models.make(part, "model");
  CHECK(model.forward(torch::zeros({2, 3, 2, 2})).sizes() == at::IntArrayRef({2, 3}));
  const auto e = testing::error_of([&] { bind_config(parse_yaml("model: {name: my_net, widht: 5}", "t"), parts); });
  CHECK(std::string(e.what()).find("width") != std::string::npos);
}
