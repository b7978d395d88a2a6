#include "testing.hpp"

#include <ATen/ATen.h>

#include <string>

#include "npu_train/trace/op_chain.hpp"

using namespace npu_train;
using npu_train::detail::find_chains;

TEST_CASE("a linear layer with its activation is a chain, and gives the value of its operators") {
  const at::Tensor x = at::randn({5, 3}), w = at::randn({4, 3}), b = at::randn({4});
  const ParameterSet parameters({{"fc.weight", w}, {"fc.bias", b}});
  const auto forward = [&](const at::Tensor& in) { return at::relu(at::linear(in, w, b)).exp(); };
  const auto chains = find_chains(forward, x, parameters);
  REQUIRE(chains.size() == 1);
  CHECK((chains[0].kind == npu_train::detail::ChainKind::Linear));
  CHECK(chains[0].layer == "fc");
  CHECK(chains[0].pattern == "Linear+ReLU");
  CHECK(chains[0].only_reader);
  CHECK(chains[0].inputs()[0].is_same(x));
  CHECK(chains[0].plain().equal(at::relu(at::linear(x, w, b))));
}

TEST_CASE("a value that two operators read, and a weight that is no parameter, make no chain") {
  const at::Tensor x = at::randn({5, 3}), w = at::randn({4, 3});
  const ParameterSet parameters({{"fc.weight", w}});
  const auto forked = [&](const at::Tensor& in) {
    const at::Tensor y = at::linear(in, w);
    return at::relu(y) + y;
  };
  CHECK(find_chains(forked, x, parameters).empty());
  CHECK(find_chains([&](const at::Tensor& in) { return at::relu(at::linear(in, w)); }, x, {}).empty());
}
