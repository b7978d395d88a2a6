#include "testing.hpp"

#include "npu_train/nn/fuse.hpp"

#include <algorithm>

#include "nn/every_pattern.hpp"

namespace npu_train {

using namespace testing;

TEST_CASE("fuse finds every pattern in a user's module and keeps its value") {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<EveryPattern>();
  net->eval();
  const at::Tensor x = torch::randn({2, 3, 6, 6}), more = torch::randn({5, 3, 6, 6});
  const at::Tensor want = net->forward(x).clone(), want_more = net->forward(more).clone();
  const auto fused = fuse(model_of(net), whatever_the_time());
  CAPTURE(fused.report.str());
  const std::map<std::string, std::string> found = {{"conv1", "Conv2d+BatchNorm+ReLU"},
                                                    {"conv2", "Conv2d+BatchNorm+Add+ReLU"},  // the sum is computed in place
                                                    {"conv3", "Conv2d+BatchNorm"},
                                                    {"attention [1, 36, 8]", "Attention"},
                                                    {"norm", "LayerNorm+GELU"},
                                                    {"fc1", "Linear+GELU"},
                                                    {"fc2", "Linear+ReLU"}};
  CHECK(patterns_by_layer(fused.report) == found);
  CHECK(fused.report.kept() == 7);
  for (const auto& p : fused.report.patterns) CHECK(p.error < 1e-5);
  CHECK(off(fused.model.forward(x), want) < 1e-5);
  CHECK(off(fused.model.forward(more), want_more) < 1e-5);
}

TEST_CASE("a result that something else reads is not fused away") {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<EveryPattern>(true);
  net->eval();
  const at::Tensor x = torch::randn({2, 3, 6, 6}), want = net->forward(x).clone();
  const auto fused = fuse(model_of(net), whatever_the_time());
  CHECK(patterns_by_layer(fused.report).count("conv2") == 0);
  CHECK(off(fused.model.forward(x), want) < 1e-5);
}

TEST_CASE("a forward that branches differently than the example runs the separate operators, or gets an error that states the reason") {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 3, 6, 6}), more = torch::randn({4, 3, 6, 6});
  for (const bool keep : {true, false}) {
    auto net = std::make_shared<EveryPattern>();
    net->hungry = true;  // reads the result of conv2, for batches above 2
    net->eval();
    const at::Tensor want = net->forward(x).clone(), want_more = net->forward(more).clone();
    const auto fused = fuse(model_of(net), whatever_the_time(keep));
    CHECK(off(fused.model.forward(x), want) < 1e-5);
    if (keep) {
      CHECK(off(fused.model.forward(more), want_more) < 1e-5);
    } else {
      CHECK_THROWS_WITH_AS(fused.model.forward(more), doctest::Contains("conv2 (Conv2d+BatchNorm+Add+ReLU)"), Error);
      CHECK_THROWS_WITH_AS(fused.model.forward(more), doctest::Contains("keep_weights"), Error);
    }
    net->train();
    if (keep)
      CHECK(fused.model.forward(x).defined());
    else
      CHECK_THROWS_WITH_AS(fused.model.forward(x), doctest::Contains("cannot be trained"), Error);
  }
}

TEST_CASE("each of the three figures refuses a pattern, and its report says which") {
  torch::manual_seed(6);
  const auto refused_for = [](auto&& change) {
    auto net = std::make_shared<EveryPattern>();
    auto options = whatever_the_time();
    change(options);
    const auto fused = fuse(model_of(net), options);
    CHECK(fused.report.kept() == 0);
    CHECK(!reads_as_nan(net->conv1->weight));
    CHECK(fused.report.str().find("0 of 7 patterns kept") != std::string::npos);
    return why_not(fused.report).at("conv1");
  };
  CHECK(refused_for([](FuseOptions& o) { o.min_saving = 1; }).find("at least 100 % is required") != std::string::npos);
  CHECK(refused_for([](FuseOptions& o) { o.max_memory_overhead = 1e-6; }).find("times the memory") != std::string::npos);
  // No pattern is exact, because folding rounds.
  auto net = std::make_shared<EveryPattern>();
  auto exact = whatever_the_time();
  exact.max_error = 0;
  const auto report = fuse(model_of(net), exact).report;
  CHECK(why_not(report).at("conv1").find("the error") != std::string::npos);
}

TEST_CASE("what would be no operator on a real result is none on a stand-in") {
  torch::manual_seed(8);
  const torch::NoGradGuard no_grad;
  const auto net = std::make_shared<Small>();
  const auto forward = [](Small& n, const at::Tensor& x) { return torch::relu(torch::linear(x, n.w, n.b).contiguous()); };
  const at::Tensor x = torch::randn({3, 8}), want = forward(*net, x).clone();
  const auto fused = fuse_small(net, x, forward);
  CHECK(fused.report.kept() == 1);
  CHECK(off(fused.model.forward(x), want) < 1e-5);
}

TEST_CASE("a weight and its transpose, and slices of one, are different weights") {
  torch::manual_seed(10);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({3, 8});
  for (const bool slices : {false, true}) {
    CAPTURE(slices);
    const auto net = std::make_shared<Small>();
    const auto forward = [slices](Small& n, const at::Tensor& in) {
      const at::Tensor first = slices ? n.w.narrow(0, 0, 4) : n.w.t(), second = slices ? n.w.narrow(0, 4, 4).t() : n.w;
      return torch::relu(torch::linear(torch::relu(torch::linear(in, first)), second));
    };
    const at::Tensor want = forward(*net, x).clone();
    const auto fused = fuse_small(net, x, forward);
    CHECK(fused.report.kept() >= 1);
    CHECK(off(fused.model.forward(x), want) < 1e-5);
  }
}

TEST_CASE("an input that is changed before the last operator of a pattern") {
  torch::manual_seed(11);
  const torch::NoGradGuard no_grad;
  const auto forward = [](Small& n, const at::Tensor& given) {
    const at::Tensor x = given.clone(), y = torch::linear(x, n.w, n.b);
    if (given.size(0) > 3) x.zero_();
    return torch::relu(y) + x;
  };
  const auto net = std::make_shared<Small>();
  const at::Tensor x = torch::randn({3, 8}), more = torch::randn({5, 8}), want = forward(*net, more).clone();
  const auto fused = fuse_small(net, x, forward, true);
  CHECK(fused.report.kept() == 1);
  CHECK(off(fused.model.forward(more), want) < 1e-5);
}

TEST_CASE("shapes that the example did not have: nothing in a batch, no batch, a sum that is broadcast") {
  torch::manual_seed(12);
  const torch::NoGradGuard no_grad;
  struct Conv : torch::nn::Module {
    torch::nn::Conv2d c{register_module("c", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1)))};
    at::Tensor offset = register_buffer("offset", torch::randn({1, 4, 6, 6}));
  };
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const auto net = std::make_shared<Conv>();
    const auto plain = [net](const at::Tensor& x) { return torch::relu(net->c(x)); };
    const auto sum = [net](const at::Tensor& x) { return torch::relu(net->offset + net->c(x)); };
    for (const auto& forward : {std::function<at::Tensor(const at::Tensor&)>(plain), std::function<at::Tensor(const at::Tensor&)>(sum)}) {
      auto options = whatever_the_time(true);
      options.example = torch::randn({1, 4, 6, 6}).contiguous(format);
      const auto fused = fuse({.module = net, .forward = forward}, options);
      for (const auto& sizes : std::vector<std::vector<int64_t>>{{0, 4, 6, 6}, {5, 4, 6, 6}}) {
        const at::Tensor x = torch::randn(sizes).contiguous(format), want = forward(x);
        const at::Tensor got = fused.model.forward(x);
        REQUIRE(got.sizes() == want.sizes());
        CHECK(at::allclose(got, want, 1e-5, 1e-5));
      }
    }
    auto options = whatever_the_time(true);
    options.example = torch::randn({1, 4, 6, 6}).contiguous(format);
    const auto fused = fuse({.module = net, .forward = plain}, options);
    const at::Tensor one = torch::randn({4, 6, 6});
    CHECK(at::allclose(fused.model.forward(one), plain(one), 1e-5, 1e-5));
    options.example = one;
    CHECK(at::allclose(fuse({.module = net, .forward = plain}, options).model.forward(one), plain(one), 1e-5, 1e-5));
  }
}

TEST_CASE("nothing is kept if the complete forward would be slower") {
  auto net = std::make_shared<EveryPattern>();
  auto model = model_of(net);
  struct CountedClock final : Clock {  // each reading advances it by a second
    double now() const override { return time += 1; }
    mutable double time = 0;
  };
  const auto clock = std::make_shared<CountedClock>();
  model.forward = [net, clock](const at::Tensor& x) {
    const at::Tensor y = net->bn1(net->conv1(x)), out = torch::relu(y);
    if (y.stride(0) == 0) clock->time += 30;  // a stand-in, so this is the fused forward
    return out;
  };
  auto options = whatever_the_time();
  options.min_saving = -20;
  options.clock = clock;
  const auto report = fuse(model, options).report;
  CHECK(report.kept() == 0);
  CHECK(why_not(report).at("conv1").find("the complete forward would take") != std::string::npos);
  CHECK(!reads_as_nan(net->conv1->weight));
}

TEST_CASE("fuse refuses what it cannot use") {
  auto net = std::make_shared<EveryPattern>();
  auto model = model_of(net);
  CHECK_THROWS_WITH_AS(fuse({}), doctest::Contains("no module"), Error);
  CHECK_THROWS_WITH_AS(fuse(model, {.min_saving = 2}), doctest::Contains("at most 1"), Error);
  CHECK_THROWS_WITH_AS(fuse(model, {.repeats = 0}), doctest::Contains("repeats is 0"), Error);
  CHECK_THROWS_WITH_AS(fuse(model, {.example = torch::randn({1, 4, 6, 6})}), doctest::Contains("channels"), Error);
  model.inputs.clear();
  CHECK_THROWS_WITH_AS(fuse(model), doctest::Contains("FuseOptions::example"), Error);
}

}  // namespace npu_train
