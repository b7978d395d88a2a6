#include "testing.hpp"

#include <torch/nn.h>

#include <thread>

#include <ATen/CPUGeneratorImpl.h>

#include "npu_train/base/state.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/own_generator.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Draws in every way in which models usually draw their initial weights.
std::vector<at::Tensor> drawn() {
  std::vector<at::Tensor> out = {torch::nn::Linear(7, 5)->weight,
                                 torch::nn::Conv2d(2, 3, 3)->bias,
                                 torch::nn::Embedding(4, 3)->weight,
                                 torch::rand({9}),
                                 torch::randn({20}),
                                 torch::randint(100, {9}),
                                 torch::randint(5, 100, {9}),
                                 torch::randperm(11),
                                 torch::randn({3, 3}, torch::kDouble),
                                 torch::zeros({30}).bernoulli_(0.5),
                                 torch::normal(0.0, 1.0, {5})};
  auto ours = torch::empty({6, 4});
  init::trunc_normal_(ours, 0.02);
  out.push_back(ours);
  for (auto& t : out) t = t.detach().clone();
  return out;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return at::equal(x, y); });
}

std::vector<at::Tensor> drawn_with(uint64_t seed) {
  const OwnGenerator own(at::detail::createCPUGenerator(seed));
  return drawn();
}

}  // namespace

TEST_CASE("a generator of its own gives what the default one gives for the same seed, and leaves that alone") {
  torch::manual_seed(7);
  const auto expected = drawn();
  torch::manual_seed(1);
  const auto before = at::detail::getDefaultCPUGenerator().get_state();
  CHECK(same(drawn_with(7), expected));
  CHECK_FALSE(same(drawn_with(8), expected));
  CHECK(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
  CHECK(host_generator() == at::detail::getDefaultCPUGenerator());
}

TEST_CASE("a generator that is given is used, and scopes nest") {
  auto given = at::detail::createCPUGenerator(3);
  const auto expected = torch::empty({5}).uniform_(0, 1, at::detail::createCPUGenerator(3));
  const OwnGenerator outer(at::detail::createCPUGenerator(1));
  CHECK(at::equal(torch::empty({5}).uniform_(0, 1, given), expected));
  const auto first = torch::rand({4});
  drawn_with(9);
  const auto second = torch::rand({4});
  const OwnGenerator again(at::detail::createCPUGenerator(1));
  CHECK(at::equal(torch::rand({4}), first));
  CHECK(at::equal(torch::rand({4}), second));
}

TEST_CASE("threads draw what they would draw alone") {
  const auto seven = drawn_with(7), eight = drawn_with(8);
  bool good = true;
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) good = good && same(drawn_with(8), eight);
  });
  bool mine = true;
  for (int i = 0; i < 20; ++i) mine = mine && same(drawn_with(7), seven);
  other.join();
  CHECK(good);
  CHECK(mine);
}
