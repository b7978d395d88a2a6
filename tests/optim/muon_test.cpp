#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/muon.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

at::Tensor muon_step(const at::Tensor& gradient, MuonOptions options) {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros(gradient.sizes(), at::kDouble).set_requires_grad(true)});
  Muon o(set, options);
  set[0].value.mutable_grad() = gradient;
  o.step();
  return -set[0].value.detach();
}

}  // namespace

TEST_CASE("the update of a matrix has singular values near 1, whatever those of the gradient") {
  at::manual_seed(2);
  for (const auto& sizes : {std::vector<int64_t>{6, 9}, std::vector<int64_t>{9, 6}}) {
    const auto gradient = at::randn(sizes, at::kDouble) * 1e3;
    const auto update = muon_step(gradient, {.lr = 1, .momentum = 0}) / std::sqrt(std::max(1.0, static_cast<double>(sizes[0]) / sizes[1]));
    const auto values = at::linalg_svdvals(update);
    CHECK(values.min().item<double>() > 0.3);
    CHECK(values.max().item<double>() < 1.3);
    CHECK(at::linalg_svdvals(gradient).min().item<double>() > 100);
  }
}

TEST_CASE("a convolution is stepped as the matrix of its outputs, also in another memory format") {
  at::manual_seed(3);
  const auto gradient = at::randn({4, 3, 2, 2}, at::kDouble);
  const auto expected = muon_step(gradient.reshape({4, 12}), {.lr = 1}).reshape({4, 3, 2, 2});
  CHECK(at::allclose(muon_step(gradient, {.lr = 1}), expected, 0, 1e-12));
  CHECK(at::allclose(muon_step(gradient.contiguous(at::MemoryFormat::ChannelsLast), {.lr = 1}), expected, 0, 1e-12));
}

TEST_CASE("vectors, and matrices that `adamw` names, are stepped by AdamW") {
  const auto start = example_parameters();
  const auto mine = deep_copy(start), theirs = deep_copy(start);
  Muon muon(mine, {.lr = 0.01, .weight_decay = 0.1, .adamw = {"fc"}, .betas = {0.8, 0.9}, .adamw_eps = 1e-6});
  AdamW adamw(theirs, {.lr = 0.01, .betas = {0.8, 0.9}, .eps = 1e-6, .weight_decay = 0.1});
  for (int t = 0; t < 5; ++t) {
    random_gradients(mine, t);
    random_gradients(theirs, t);
    muon.step();
    adamw.step();
  }
  for (size_t i = 0; i < start.size(); ++i) {
    CAPTURE(start[i].name);
    CHECK(at::allclose(mine[i].value, theirs[i].value, 1e-5, 1e-6) == (start[i].name != "conv.weight"));
  }
  CHECK(muon.state().tensors.count("momentum/conv.weight") == 1);
  CHECK(muon.state().tensors.count("momentum/fc.weight") == 0);
}
