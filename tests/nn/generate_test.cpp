#include "testing.hpp"

#include "npu_train/nn/generate.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "npu_train/core/error.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns each token's share of many draws.
std::map<int64_t, double> shares(const at::Tensor& logits, const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  Philox random(1);
  std::map<int64_t, double> out;
  for (int i = 0; i < kDraws; ++i) out[sample_token(logits, options, random)] += 1.0 / kDraws;
  return out;
}

// A model in which, after a token t, token t + 1 has the largest logit. The number of tokens that the model gets has the second largest.
struct Counting : torch::nn::Module {
  std::vector<int64_t> lengths;
  at::Tensor forward(const at::Tensor& tokens) {
    lengths.push_back(tokens.size(1));
    const at::Tensor next = at::one_hot((tokens + 1).remainder(8), 8).to(at::kFloat) * 3;
    return next + at::one_hot(at::full({1, 1}, tokens.size(1) % 8, at::kLong), 8).to(at::kFloat);
  }
};

struct CountingModel {
  std::shared_ptr<Counting> net = std::make_shared<Counting>();
  Model model{.name = "counting", .module = net, .forward = [net = net](const at::Tensor& x) { return net->forward(x); }, .inputs = {}};
  explicit CountingModel(int64_t longest) {
    model.inputs = {{.name = "input", .dtype = at::kLong, .shape = {"batch", Extent("tokens", longest)}, .range = std::pair(0.0, 8.0)}};
  }
};

}  // namespace

TEST_CASE("tokens are drawn with their probabilities") {
  const at::Tensor logits = at::tensor({std::log(1.0), std::log(4.0), std::log(2.0), -INFINITY, std::log(3.0)}, at::kFloat);
  const auto near = [](const std::map<int64_t, double>& got, const std::map<int64_t, double>& expected) {
    CHECK(got.size() == expected.size());
    for (const auto& entry : expected) {
      REQUIRE(got.count(entry.first) == 1);
      CHECK(got.at(entry.first) == doctest::Approx(entry.second).epsilon(0.05));
    }
  };
  near(shares(logits, {}), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {4, 0.3}});
  near(shares(logits, {.temperature = 0.5}), {{0, 1.0 / 30}, {1, 16.0 / 30}, {2, 4.0 / 30}, {4, 9.0 / 30}});
  near(shares(logits, {.top_k = 2}), {{1, 4.0 / 7}, {4, 3.0 / 7}});
  near(shares(logits, {.top_k = 9}), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {4, 0.3}});
  near(shares(logits, {.top_p = 0.69}), {{1, 4.0 / 7}, {4, 3.0 / 7}});
  near(shares(logits, {.top_p = 0.71}), {{1, 4.0 / 9}, {2, 2.0 / 9}, {4, 3.0 / 9}});
  near(shares(logits, {.top_p = 0.01}), {{1, 1.0}});
  near(shares(logits, {.top_k = 2, .top_p = 0.5}), {{1, 1.0}});  // top_p is a share of these two tokens, not of all
  near(shares(logits, {.temperature = 0}), {{1, 1.0}});
  near(shares(at::zeros({3}), {.temperature = 0}), {{0, 1.0}});
  near(shares(at::zeros({3}), {.top_k = 1}), {{0, 1.0}});
}

TEST_CASE("draws from a large vocabulary are those from all tokens in order") {
  torch::manual_seed(1);
  const at::Tensor logits = at::randn({3000}) * 3;
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t i = 0; i < 3000; ++i) order.emplace_back(-logits[i].item<double>(), i);
  std::sort(order.begin(), order.end());
  const auto expected = [&](const SamplingOptions& o, double uniform) {
    std::vector<double> weights;
    for (size_t i = 0; i < (o.top_k > 0 ? static_cast<size_t>(o.top_k) : order.size()); ++i)
      weights.push_back(std::exp((order[0].first - order[i].first) / o.temperature));
    const auto sum = [&] { return std::accumulate(weights.begin(), weights.end(), 0.0); };
    double left = o.top_p * sum();
    size_t kept = 0;
    while (kept < weights.size() && left > 0) left -= weights[kept++];
    weights.resize(kept);
    double at = uniform * sum();
    size_t i = 0;
    while (i + 1 < weights.size() && (at -= weights[i]) >= 0) ++i;
    return order[i].second;
  };
  for (const auto& o : {SamplingOptions{}, SamplingOptions{.temperature = 9}, SamplingOptions{.top_p = 0.9},
                        SamplingOptions{.temperature = 9, .top_p = 0.9}, SamplingOptions{.temperature = 9, .top_k = 1500},
                        SamplingOptions{.temperature = 9, .top_k = 1500, .top_p = 0.5}}) {
    CAPTURE(o.temperature);
    CAPTURE(o.top_k);
    CAPTURE(o.top_p);
    Philox random(3), same(3);
    std::set<int64_t> different;
    for (int i = 0; i < 40; ++i) {
      const auto token = sample_token(logits, o, random);
      CHECK(token == expected(o, same.uniform()));
      different.insert(token);
    }
    CHECK(different.size() > 2);
  }
}

TEST_CASE("a penalty makes the tokens of the text less probable") {
  CountingModel counting(0);
  // The logit of token 5 is 3. The logit of token 2, the length, is 1.
  const auto next = [&](double penalty) {
    return generate(counting.model, {5, 4}, {.max_new_tokens = 1, .sampling = {.temperature = 0, .repetition_penalty = penalty}});
  };
  CHECK(next(1) == std::vector<int64_t>{5});
  CHECK(next(2.9) == std::vector<int64_t>{5});
  CHECK(next(3.1) == std::vector<int64_t>{2});
}

TEST_CASE("each token follows from those before it; the key-value cache is optional") {
  CountingModel counting(0);
  CHECK(generate(counting.model, {3, 4}, {.max_new_tokens = 4, .sampling = {.temperature = 0}}) == std::vector<int64_t>{5, 6, 7, 0});
  CHECK(counting.net->lengths == std::vector<int64_t>{2, 3, 4, 5});
  CHECK(counting.net->is_training());

  counting.net->lengths.clear();
  counting.model.start_sequence = [net = counting.net] { return [net](const at::Tensor& x) { return net->forward(x); }; };
  CHECK(generate(counting.model, {3, 4}, {.max_new_tokens = 3, .sampling = {.temperature = 0}}) == std::vector<int64_t>{5, 6, 7});
  CHECK(counting.net->lengths == std::vector<int64_t>{2, 1, 1});  // gets only the new tokens
  counting.net->lengths.clear();
  generate(counting.model, {3, 4}, {.max_new_tokens = 3, .sampling = {.temperature = 0}, .key_value_cache = false});
  CHECK(counting.net->lengths == std::vector<int64_t>{2, 3, 4});
  CHECK(generate(counting.model, {1}, {.max_new_tokens = 0}).empty());
}

TEST_CASE("each row of a batch has the text of its prompt alone") {
  CountingModel counting(0);
  // Logits of the last column of each row, as if the row were alone.
  std::vector<std::vector<int64_t>> seen;
  counting.model.start_batch = [&](const at::Tensor& padding) {
    auto begun = std::make_shared<int64_t>(0);  // number of columns so far
    return [&, padding, begun](const at::Tensor& tokens) {
      seen.push_back({tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel()});
      *begun += tokens.size(1);
      const at::Tensor next = at::one_hot((tokens.narrow(1, tokens.size(1) - 1, 1) + 1).remainder(8), 8).to(at::kFloat) * 3;
      return next + at::one_hot((*begun - padding).remainder(8), 8).unsqueeze(1).to(at::kFloat);
    };
  };
  const std::vector<std::vector<int64_t>> prompts{{3, 4}, {6}, {1, 2, 3}};
  const GenerateOptions greedy{.max_new_tokens = 3, .sampling = {.temperature = 0}};
  std::vector<std::pair<size_t, int64_t>> told;
  const auto stop_row_one_at_zero = [&](size_t row, int64_t token) {
    told.emplace_back(row, token);
    return row != 1 || token != 0;
  };
  const auto texts = generate_batch(counting.model, prompts, greedy, stop_row_one_at_zero);
  CHECK(texts == std::vector<std::vector<int64_t>>{{5, 6, 7}, {7, 0}, {4, 5, 6}});
  CHECK(told == std::vector<std::pair<size_t, int64_t>>{{0, 5}, {1, 7}, {2, 4}, {0, 6}, {1, 0}, {2, 5}, {0, 7}, {2, 6}});
  // The first piece is padded at the left with token 0; later ones have one token of each row.
  CHECK(seen == std::vector<std::vector<int64_t>>{{0, 3, 4, 0, 0, 6, 1, 2, 3}, {5, 7, 4}, {6, 0, 5}});
  CHECK(counting.net->lengths.empty());

  const GenerateOptions drawn{.max_new_tokens = 9, .sampling = {.temperature = 2, .repetition_penalty = 1.5}, .seed = 4};
  const auto rows = generate_batch(counting.model, prompts, drawn);
  for (size_t i = 0; i < prompts.size(); ++i) CHECK(rows[i] == generate(counting.model, prompts[i], drawn));
}

TEST_CASE("beyond the longest input, and without a cache, each row of a batch is alone") {
  CountingModel counting(3);
  const std::vector<std::vector<int64_t>> prompts{{3, 4}, {6}};
  const GenerateOptions greedy{.max_new_tokens = 3, .sampling = {.temperature = 0}, .key_value_cache = false};
  const auto stop_at_seven = [](size_t, int64_t token) { return token != 7; };
  CHECK(generate_batch(counting.model, prompts, greedy, stop_at_seven) == std::vector<std::vector<int64_t>>{{5, 6, 7}, {7}});
  CHECK(counting.net->lengths == std::vector<int64_t>{2, 1, 3, 3});
  counting.net->lengths.clear();
  int pieces = 0;
  counting.model.start_batch = [&](const at::Tensor&) {
    return [&](const at::Tensor& tokens) {
      ++pieces;
      return at::one_hot((tokens + 1).remainder(8), 8).to(at::kFloat);
    };
  };
  CHECK(generate_batch(counting.model, prompts, {.max_new_tokens = 4, .sampling = {.temperature = 0}}) ==
        std::vector<std::vector<int64_t>>{{5, 6, 7, 0}, {7, 0, 1, 2}});
  CHECK(pieces == 2);  // one of two columns, and one of the third column
  CHECK(counting.net->lengths == std::vector<int64_t>{3, 3, 3, 3});
}

TEST_CASE("beyond the longest input the model sees the last tokens") {
  CountingModel counting(3);
  counting.model.start_sequence = [net = counting.net] { return [net](const at::Tensor& x) { return net->forward(x); }; };
  CHECK(generate(counting.model, {3, 4}, {.max_new_tokens = 5, .sampling = {.temperature = 0}}) == std::vector<int64_t>{5, 6, 7, 0, 1});
  CHECK(counting.net->lengths == std::vector<int64_t>{2, 1, 3, 3, 3});
  counting.net->lengths.clear();
  CHECK(generate(counting.model, {0, 1, 2, 3, 4}, {.max_new_tokens = 1, .sampling = {.temperature = 0}}) == std::vector<int64_t>{5});
  CHECK(counting.net->lengths == std::vector<int64_t>{3});
}

TEST_CASE("equal seeds give equal texts; a callback sees each token and can end the text") {
  CountingModel counting(0);
  const auto text = [&](uint64_t seed) {
    return generate(counting.model, {0}, {.max_new_tokens = 30, .sampling = {.temperature = 2}, .seed = seed});
  };
  CHECK(text(1) == text(1));
  CHECK(text(1) != text(2));
  std::vector<int64_t> seen;
  const auto stop_at_six = [&](int64_t token) {
    seen.push_back(token);
    return token != 6;
  };
  CHECK(generate(counting.model, {3}, {.sampling = {.temperature = 0}, .on_token = stop_at_six}) == std::vector<int64_t>{4, 5, 6});
  CHECK(seen == std::vector<int64_t>{4, 5, 6});
}

TEST_CASE("invalid options, prompts, models and logits are one error each") {
  CountingModel counting(0);
  const auto error = [](const auto& run, ErrorKind kind, const std::string& words) {
    const auto e = error_of(run);
    CHECK(((e.kind() == kind)));
    CHECK_MESSAGE(std::string(e.what()).find(words) != std::string::npos, e.what());
  };
  const auto with = [&](const SamplingOptions& sampling) { generate(counting.model, {1}, {.max_new_tokens = 1, .sampling = sampling}); };
  error([&] { with({.temperature = -1}); }, ErrorKind::Usage, "temperature is -1");
  error([&] { with({.temperature = INFINITY}); }, ErrorKind::Usage, "temperature is inf");
  error([&] { with({.top_k = -1}); }, ErrorKind::Usage, "top_k is -1");
  error([&] { with({.top_p = 0}); }, ErrorKind::Usage, "top_p is 0");
  error([&] { with({.repetition_penalty = 0}); }, ErrorKind::Usage, "repetition_penalty is 0");
  error([&] { with({.top_p = 1.1}); }, ErrorKind::Usage, "top_p is 1.1");
  error([&] { generate(counting.model, {1}, {.max_new_tokens = -1}); }, ErrorKind::Usage, "max_new_tokens is -1");
  error([&] { generate(counting.model, {}); }, ErrorKind::Usage, "the prompt is empty");
  error([&] { generate(counting.model, {1, 8}); }, ErrorKind::Usage, "token 1 of the prompt is 8; allowed: 0 to 7");
  error([&] { generate(counting.model, {-1}); }, ErrorKind::Usage, "token 0 of the prompt is -1");
  error([&] { generate_batch(counting.model, {}); }, ErrorKind::Usage, "there are no prompts");
  error([&] { generate_batch(counting.model, {{1}, {2}}); }, ErrorKind::Usage, "continues one text at a time, and there are 2 prompts");
  error([&] { generate_batch(counting.model, {{1}, {}}, {.key_value_cache = false}); }, ErrorKind::Usage, "prompt 1 is empty");
  error(
      [&] {
        generate_batch(counting.model, {{1}, {0, 8}}, {.key_value_cache = false});
      },
      ErrorKind::Usage, "token 1 of prompt 1 is 8; allowed: 0 to 7");
  Model images = counting.model;
  images.inputs = {image_input(3, 8)};
  error([&] { generate(images, {1}); }, ErrorKind::Usage, "does not have token ids");
  Philox random(1);
  error([&] { sample_token(at::full({2}, std::nan("")), {}, random); }, ErrorKind::Data, "not finite numbers");
  error([&] { sample_token(at::zeros({2, 2}), {}, random); }, ErrorKind::Usage, "allowed: [vocabulary]");
}
