#include "testing.hpp"

#include "npu_train/train/language_model.hpp"

#include <cmath>

#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A model that returns given logits.
struct GivenLogits : torch::nn::Module {
  at::Tensor logits;
  at::Tensor forward(at::Tensor) { return logits; }
};

std::shared_ptr<Task> given(const at::Tensor& logits) {
  auto net = std::make_shared<GivenLogits>();
  net->logits = logits;
  return language_model(as_model(net));
}

Batch next_tokens(const at::Tensor& target) { return Batch(torch::zeros_like(target), target); }

}  // namespace

TEST_CASE("loss, weight and accuracy are of the tokens that count") {
  torch::manual_seed(1);
  const auto logits = torch::randn({2, 3, 5});
  logits[0][0][1] = 9, logits[1][2][4] = 9;
  const auto target = torch::tensor({{1, -100, 0}, {-100, -100, 4}});
  logits[0][2][3] = 9;  // makes target 0 wrong
  const auto task = given(logits);
  auto batch = next_tokens(target);
  const auto output = task->training_step(batch);
  CHECK(output.weight == 3);
  const auto each = torch::log_softmax(logits, 2);
  CHECK(output.loss.item<double>() == doctest::Approx(-(each[0][0][1] + each[0][2][0] + each[1][2][4]).item<double>() / 3));
  CHECK(task->metric_names() == std::vector<std::string>{"acc"});
  CHECK(at::equal(task->metric_sums(output, batch), torch::tensor({{200.F}, {3.F}})));  // two of three tokens are right

  batch.set("mask", torch::tensor({1., 0.}));
  const auto masked = task->training_step(batch);
  CHECK(masked.weight == 2);
  CHECK(masked.loss.item<double>() == doctest::Approx(-(each[0][0][1] + each[0][2][0]).item<double>() / 2));
  CHECK(at::equal(task->metric_sums(masked, batch), torch::tensor({{100.F}, {2.F}})));
}

TEST_CASE("perplexity is that of the mean loss, and the unit of the weight is the token") {
  const auto task = given(torch::zeros({1, 2, 4}));
  CHECK(all_metric_names(*task) == std::vector<std::string>{"acc", "perplexity"});
  CHECK(task->weight_unit() == "tokens");
  Scalars averages{{"loss", std::log(5.0)}, {"acc", 50}};
  add_metrics_of_loss(*task, averages);
  REQUIRE(averages.size() == 3);
  CHECK(averages[2].first == "perplexity");
  CHECK(averages[2].second == doctest::Approx(5));
  Scalars none;
  add_metrics_of_loss(*task, none);
  CHECK(none.empty());
}

TEST_CASE("label smoothing") {
  torch::manual_seed(2);
  const auto logits = torch::randn({1, 2, 4});
  auto net = std::make_shared<GivenLogits>();
  net->logits = logits;
  const auto task = language_model(as_model(net), {.label_smoothing = 0.1});
  const auto output = task->training_step(next_tokens(torch::tensor({{1, 3}})));
  const auto each = torch::log_softmax(logits, 2);
  const auto expected = -(0.9 * (each[0][0][1] + each[0][1][3]) / 2 + 0.1 * each.mean());
  CHECK(output.loss.item<double>() == doctest::Approx(expected.item<double>()));
}

TEST_CASE("a batch without a token that counts weighs nothing; equal logits are not right") {
  const auto task = given(torch::zeros({1, 2, 4}));
  const auto none = next_tokens(torch::full({1, 2}, -100, torch::kLong));
  const auto output = task->training_step(none);
  CHECK(output.weight == 0);
  CHECK(at::equal(task->metric_sums(output, none), torch::zeros({2, 1})));
  const auto equal = next_tokens(torch::zeros({1, 2}, torch::kLong));
  CHECK(at::equal(task->metric_sums(task->training_step(equal), equal), torch::tensor({{0.F}, {2.F}})));
}

TEST_CASE("without targets the next tokens of the text are predicted, but for those that do not count, and padding") {
  torch::manual_seed(4);
  const auto logits = torch::randn({3, 5, 8});
  const auto task = given(logits);
  Batch batch;
  batch.set("input", torch::tensor({{1, 2, 3, 4, 5}, {6, 7, 0, 0, 0}, {5, 4, 3, 0, 0}}));
  batch.set("attention_mask", torch::tensor({{1, 1, 1, 1, 1}, {1, 1, 0, 0, 0}, {1, 1, 1, 0, 0}}));
  batch.set("loss_mask", torch::tensor({{0, 0, 0, 1, 1}, {1, 1, 0, 0, 0}, {0, 1, 1, 0, 0}}));
  const auto expected = torch::tensor({{-100, -100, 4, 5, -100}, {7, -100, -100, -100, -100}, {4, 3, -100, -100, -100}});
  const auto output = task->training_step(batch), wanted = given(logits)->training_step(next_tokens(expected));
  CHECK(output.weight == 5);
  CHECK(output.loss.item<double>() == wanted.loss.item<double>());
  CHECK(at::equal(task->metric_sums(output, batch), given(logits)->metric_sums(wanted, next_tokens(expected))));
  batch.set("loss_mask", torch::tensor({{1, 0, 1, 0, 1}, {1, 0, 1, 1, 1}, {0, 1, 0, 1, 1}}));
  const auto holes = torch::tensor({{-100, 3, -100, 5, -100}, {-100, -100, -100, -100, -100}, {4, -100, -100, -100, -100}});
  CHECK(task->training_step(batch).loss.item<double>() == given(logits)->training_step(next_tokens(holes)).loss.item<double>());
  CHECK(task->training_step(batch).weight == 3);
  batch.erase("loss_mask");
  CHECK(task->training_step(batch).weight == 4 + 1 + 2);
  batch.erase("attention_mask");
  CHECK(task->training_step(batch).weight == 12);
  batch.set("mask", torch::tensor({1., 0., 1.}));
  CHECK(task->training_step(batch).weight == 8);
  batch.set("prompt", torch::tensor({3, 0, 1}));
  CHECK(has(error_of([&] { task->training_step(batch); }).what(), "the batch has 'prompt', whose place 'loss_mask' has taken"));
  batch.set("input", torch::zeros({3, 5}));
  CHECK(has(error_of([&] { task->training_step(batch); }).what(), "the batch has no 'target'"));
}

TEST_CASE("other shapes and targets outside of the vocabulary are errors") {
  const auto task = given(torch::zeros({1, 2, 4}));
  const auto shapes = error_of([&] { task->training_step(next_tokens(torch::zeros({1, 3}, torch::kLong))); });
  CHECK(((shapes.kind() == ErrorKind::Usage)));
  CHECK(std::string(shapes.what()).find("[batch, tokens, vocabulary]") != std::string::npos);
  const auto id = error_of([&] { task->training_step(next_tokens(torch::tensor({{0, 4}}))); });
  CHECK(((id.kind() == ErrorKind::Data)));
  CHECK(std::string(id.what()).find("target 1 of sequence 0 is 4; allowed: 0 to 3") != std::string::npos);
}
