// Weights of layers that fuse() computes in another form: released or kept, and never read unnoticed.
#include "testing.hpp"

#include "npu_train/nn/module_state.hpp"

#include "nn/every_pattern.hpp"

namespace npu_train {

using namespace testing;

TEST_CASE("weights of fused layers are given up, or kept") {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    auto net = std::make_shared<EveryPattern>();
    net->eval();
    const at::Tensor want = net->forward(x).clone();
    const auto fused = fuse(model_of(net), whatever_the_time(keep));
    CHECK(reads_as_nan(net->conv1->weight) != keep);
    CHECK(reads_as_nan(net->fc1->weight) != keep);
    CHECK(!reads_as_nan(net->fc3->weight));  // part of no pattern
    CHECK(net->conv1->weight.sizes() == c10::IntArrayRef{8, 3, 3, 3});
    CHECK(named_state(*net).size() == named_state(EveryPattern()).size());
    CHECK(off(fused.model.forward(x), want) < 1e-5);
    if (keep) CHECK(torch::equal(net->forward(x), want));
  }
}

TEST_CASE("a weight that two layers share stays") {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  struct Tied : torch::nn::Module {
    torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 8))};
    at::Tensor forward(const at::Tensor& x) { return torch::linear(torch::relu(fc(x)), fc->weight); }
  };
  auto net = std::make_shared<Tied>();
  const at::Tensor x = torch::randn({3, 8}), want = net->forward(x).clone();
  auto options = whatever_the_time();
  options.example = x;
  const auto fused = fuse({.module = net, .forward = [net](const at::Tensor& in) { return net->forward(in); }}, options);
  CHECK(fused.report.kept() == 1);
  CHECK(!reads_as_nan(net->fc->weight));
  CHECK(off(fused.model.forward(x), want) < 1e-5);
}

TEST_CASE("a weight that was given up is never read unnoticed") {
  torch::manual_seed(9);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({3, 8});
  SUBCASE("by an operator that is not the one of the example") {
    const auto net = std::make_shared<Small>();
    const auto fused = fuse_small(net, x, [](Small& n, const at::Tensor& in) {
      return in.size(0) > 3 ? torch::linear(in, n.w) : torch::relu(torch::linear(in, n.w, n.b));
    });
    CHECK(fused.report.kept() == 1);
    CHECK_THROWS_WITH_AS(fused.model.forward(torch::randn({4, 8})), doctest::Contains("keep_weights"), Error);
  }
  SUBCASE("by torch::nn::Linear, which calls another operator for tokens than for rows") {
    struct Net : torch::nn::Module {
      torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 8))};
    };
    const auto net = std::make_shared<Net>();
    auto options = whatever_the_time();
    options.example = x;
    const auto fused = fuse({.module = net, .forward = [net](const at::Tensor& in) { return torch::relu(net->fc(in)); }}, options);
    CHECK(fused.report.kept() == 1);
    CHECK_THROWS_WITH_AS(fused.model.forward(torch::randn({2, 3, 8})), doctest::Contains("fc"), Error);
  }
  SUBCASE("parameters that share one storage stay") {
    const auto net = std::make_shared<Small>();
    const at::Tensor flat = torch::randn({72});
    net->w.set_data(flat.narrow(0, 0, 64).view({8, 8}));
    net->b.set_data(flat.narrow(0, 64, 8));
    const auto forward = [](Small& n, const at::Tensor& in) { return torch::relu(torch::linear(in, n.w, n.b)); };
    const at::Tensor want = forward(*net, x).clone();
    const auto fused = fuse_small(net, x, forward);
    CHECK(!reads_as_nan(net->w));
    CHECK(off(fused.model.forward(x), want) < 1e-5);
  }
  SUBCASE("by a second fuse") {
    const auto net = std::make_shared<Small>();
    const auto forward = [](Small& n, const at::Tensor& in) { return torch::relu(torch::linear(in, n.w, n.b)); };
    fuse_small(net, x, forward);
    CHECK_THROWS_WITH_AS(fuse_small(net, x, forward), doctest::Contains("w was given up by an earlier fuse"), Error);
  }
}

TEST_CASE("a weight that the model cannot do without stays, and the others are given up") {
  torch::manual_seed(13);
  const torch::NoGradGuard no_grad;
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    auto net = std::make_shared<EveryPattern>();
    net->eval();
    const auto forward = [net](const at::Tensor& in) {
      const at::Tensor x = in * 2, w = torch::relu(net->bn1(net->conv1(in)));
      at::Tensor y = net->bn3(net->conv3(x));
      x.relu_();  // before the fused conv3 has read it
      y += w;
      y.relu_();
      return torch::relu(net->bn2(net->conv2(y)));
    };
    auto options = whatever_the_time(keep);
    options.example = torch::randn({2, 3, 6, 6});
    const at::Tensor want = forward(options.example).clone();
    const auto fused = fuse({.module = net, .forward = forward}, options);
    CAPTURE(fused.report.str());
    CHECK(fused.report.kept() == 3);
    CHECK(!reads_as_nan(net->conv3->weight));
    CHECK(reads_as_nan(net->conv1->weight) != keep);
    CHECK(reads_as_nan(net->conv2->weight) != keep);
    CHECK(off(fused.model.forward(options.example), want) < 1e-5);
  }
}

TEST_CASE("a weight that must stay counts as memory") {
  torch::manual_seed(14);
  const torch::NoGradGuard no_grad;
  struct Convs : torch::nn::Module {
    torch::nn::Conv2d c1{register_module("c1", torch::nn::Conv2d(32, 32, 1))}, c2{register_module("c2", torch::nn::Conv2d(32, 32, 1))};
    torch::nn::BatchNorm2d bn1{register_module("bn1", torch::nn::BatchNorm2d(32))}, bn2{register_module("bn2", torch::nn::BatchNorm2d(32))};
  };
  const auto net = std::make_shared<Convs>();
  net->eval();
  const auto forward = [net](const at::Tensor& in) {
    at::Tensor x = torch::relu(net->bn1(net->c1(in)));
    const at::Tensor y = net->bn2(net->c2(x));
    x.zero_();  // before the fused c2 has read it
    return torch::relu(y);
  };
  auto options = whatever_the_time();
  options.example = torch::randn({1, 32, 2, 2});
  options.max_memory_overhead = 1.2;  // enough for the folded weights and little else
  const at::Tensor want = forward(options.example).clone();
  const auto fused = fuse({.module = net, .forward = forward}, options);
  CAPTURE(fused.report.str());
  CHECK(fused.report.kept() == 1);
  CHECK(why_not(fused.report).at("c2").find("times the memory, since its weight must stay") != std::string::npos);
  CHECK(reads_as_nan(net->c1->weight));
  CHECK(!reads_as_nan(net->c2->weight));
  CHECK(off(fused.model.forward(options.example), want) < 1e-5);
}

TEST_CASE("a module that is moved or cast after fuse") {
  torch::manual_seed(15);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  for (const bool keep : {false, true}) {
    auto net = std::make_shared<EveryPattern>();
    net->eval();
    const at::Tensor want = net->forward(x).clone();
    const auto fused = fuse(model_of(net), whatever_the_time(keep));
    net->to(at::kFloat);  // changes no dtype
    CHECK(off(fused.model.forward(x), want) < 1e-5);
    net->to(at::kDouble);
    if (keep) {
      CHECK(off(fused.model.forward(x.to(at::kDouble)), want) < 1e-5);
    } else {
      CHECK_THROWS_WITH_AS(fused.model.forward(x.to(at::kDouble)), doctest::Contains("was moved or cast after fuse"), Error);
      net->to(at::kFloat);
      CHECK_THROWS_WITH_AS(fused.model.forward(x), doctest::Contains("was moved or cast after fuse"), Error);
    }
  }
}

}  // namespace npu_train
