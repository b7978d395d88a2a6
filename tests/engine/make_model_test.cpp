#include "testing.hpp"

#include "npu_train/engine/make_model.hpp"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <torch/nn/module.h>

using namespace npu_train;

namespace {

const PartConfig kViT{.name = "vit_tiny_cifar10", .options = {{"depth", 1}}};

std::vector<at::Tensor> weights(const Model& model) {
  std::vector<at::Tensor> out;
  for (const auto& p : model.module->parameters()) out.push_back(p.detach().clone());
  return out;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("the seed alone decides the initial weights: those of libtorch's generator with that seed") {
  const auto parts = builtin_parts();
  at::manual_seed(7);
  const auto expected = weights(parts.models.make(kViT, "model"));
  const auto next = at::rand({4});

  at::manual_seed(1234);
  at::rand({100});
  CHECK(equal(weights(make_model(kViT, parts, 7)), expected));
  CHECK(at::rand({4}).equal(next));  // the default generator has advanced as if it had drawn them
  CHECK_FALSE(equal(weights(make_model(kViT, parts, 8)), expected));
}

TEST_CASE("a name that no model has is refused") {
  CHECK(testing::error_of([] { make_model({.name = "vit_tny"}, builtin_parts(), 0); }).kind() == ErrorKind::Usage);
}
