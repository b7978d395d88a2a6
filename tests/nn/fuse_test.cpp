#include "testing.hpp"

#include "npu_train/nn/fuse.hpp"
#include "npu_train/nn/named_state.hpp"

#include <torch/nn.h>
#include <torch/types.h>

namespace npu_train {
namespace {

// A user's module, of libtorch's own layers, with every pattern; `uses` makes trouble.
struct EveryPattern : torch::nn::Module {
  explicit EveryPattern(bool reads_twice = false) : reads_twice(reads_twice) {
    bn1->eval();
    for (auto& bn : {bn1, bn2, bn3}) {
      torch::nn::init::uniform_(bn->weight, 0.5, 1.5);
      torch::nn::init::normal_(bn->bias);
      bn->running_mean.normal_();
      bn->running_var.uniform_(0.5, 2.0);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::relu(bn1(conv1(x)));
    at::Tensor raw = conv2(y);
    at::Tensor z = bn2(raw);
    z += bn3(conv3(x));
    z = torch::relu_(z);
    if (reads_twice || (hungry && x.size(0) > 2)) z = z + raw;
    at::Tensor t = z.flatten(2).transpose(1, 2);  // [N, 36, 8]
    at::Tensor scores = torch::matmul(t, t.transpose(-2, -1)) / std::sqrt(8.0);
    t = torch::matmul(torch::softmax(scores, -1), t);
    t = torch::gelu(norm(t));
    t = torch::gelu(fc1(t));
    t = torch::relu(fc2(t.mean(1)));
    return fc3(t);
  }
  bool reads_twice, hungry = false;
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)))},
      conv2{register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 1).bias(false)))},
      conv3{register_module("conv3", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1).groups(1)))};
  torch::nn::BatchNorm2d bn1{register_module("bn1", torch::nn::BatchNorm2d(8))}, bn2{register_module("bn2", torch::nn::BatchNorm2d(8))},
      bn3{register_module("bn3", torch::nn::BatchNorm2d(8))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 16))}, fc2{register_module("fc2", torch::nn::Linear(16, 16))},
      fc3{register_module("fc3", torch::nn::Linear(16, 4))};
};

Model model_of(const std::shared_ptr<EveryPattern>& net) {
  return {.name = "every_pattern",
          .module = net,
          .forward = [net](const at::Tensor& x) { return net->forward(x); },
          .image_size = 6,
          .num_classes = 4};
}

// Keeps what is right, however slow: what a timing keeps is another matter.
FuseOptions whatever_the_time(bool keep_weights = false) {
  return {.min_saving = -std::numeric_limits<double>::infinity(),
          .max_memory_overhead = 1e9,
          .max_error = 1e-5,
          .keep_weights = keep_weights,
          .repeats = 1};
}

double off(const at::Tensor& a, const at::Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

std::map<std::string, std::string> patterns_by_layer(const FuseReport& report) {
  std::map<std::string, std::string> out;
  for (const auto& p : report.patterns) out[p.layer] = p.pattern;
  return out;
}

std::map<std::string, std::string> why_not(const FuseReport& report) {
  std::map<std::string, std::string> out;
  for (const auto& p : report.patterns)
    if (!p.kept) out[p.layer] = p.reason;
  return out;
}

bool reads_as_nan(const at::Tensor& t) { return t.isnan().all().item<bool>(); }

}  // namespace

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
                                                    {"conv2", "Conv2d+BatchNorm+Add+ReLU"},  // the sum is made in its place
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
    CHECK(!reads_as_nan(net->fc3->weight));  // is in no pattern
    CHECK(net->conv1->weight.sizes() == c10::IntArrayRef{8, 3, 3, 3});
    CHECK(named_state(*net).size() == named_state(EveryPattern()).size());
    CHECK(off(fused.model.forward(x), want) < 1e-5);
    if (keep) CHECK(torch::equal(net->forward(x), want));
  }
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

TEST_CASE("a forward that takes another way than the example gets the separate operators, or an error that says so") {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 3, 6, 6}), more = torch::randn({4, 3, 6, 6});
  for (const bool keep : {true, false}) {
    auto net = std::make_shared<EveryPattern>();
    net->hungry = true;  // reads what conv2 gave, for batches above 2
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
  CHECK(refused_for([](FuseOptions& o) { o.min_saving = 1; }).find("at least 100 % is asked for") != std::string::npos);
  CHECK(refused_for([](FuseOptions& o) { o.max_memory_overhead = 1e-6; }).find("times the memory") != std::string::npos);
  // Folding rounds: no float result is the very same.
  auto net = std::make_shared<EveryPattern>();
  auto exact = whatever_the_time();
  exact.max_error = 0;
  const auto report = fuse(model_of(net), exact).report;
  CHECK(why_not(report).at("conv1").find("the error") != std::string::npos);
}

// A module of one function over parameters w [8, 8] and b [8].
struct Small : torch::nn::Module {
  at::Tensor w = register_parameter("w", torch::randn({8, 8})), b = register_parameter("b", torch::randn({8}));
};
template <class Fn>
FusedModel fuse_small(const std::shared_ptr<Small>& net, const at::Tensor& example, Fn fn, bool keep_weights = false) {
  auto options = whatever_the_time(keep_weights);
  options.example = example;
  return fuse({.module = net, .forward = [net, fn](const at::Tensor& x) { return fn(*net, x); }}, options);
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
  SUBCASE("parameters that lie in one storage stay") {
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

TEST_CASE("fuse refuses what it cannot use") {
  auto net = std::make_shared<EveryPattern>();
  auto model = model_of(net);
  CHECK_THROWS_WITH_AS(fuse({}), doctest::Contains("no module"), Error);
  CHECK_THROWS_WITH_AS(fuse(model, {.min_saving = 2}), doctest::Contains("at most 1"), Error);
  CHECK_THROWS_WITH_AS(fuse(model, {.repeats = 0}), doctest::Contains("repeats is 0"), Error);
  CHECK_THROWS_WITH_AS(fuse(model, {.example = torch::randn({1, 4, 6, 6})}), doctest::Contains("channels"), Error);
  model.image_size = 0;
  CHECK_THROWS_WITH_AS(fuse(model), doctest::Contains("FuseOptions::example"), Error);
}

}  // namespace npu_train
