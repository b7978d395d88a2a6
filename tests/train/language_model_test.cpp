#include "testing.hpp"

#include <cmath>

#include "npu_train/device/random.hpp"
#include "npu_train/train/language_model.hpp"
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

namespace {

constexpr int64_t kVocabulary = 1000;

MaskedLanguageModelOptions masking() { return {.mask_token = 999, .special_tokens = {0, 1}}; }

at::Tensor texts(int64_t rows, int64_t tokens) {
  torch::manual_seed(5);
  return torch::randint(2, 900, {rows, tokens}, at::kLong);
}

double share(const at::Tensor& of, const at::Tensor& among) {
  return of.logical_and(among).sum().item<double>() / among.sum().item<double>();
}

Batch batch_of(const at::Tensor& tokens, int64_t epoch = 0, int64_t index = 0) {
  Batch out;
  out.set("input", tokens);
  out.size = tokens.size(0);
  out.epoch = epoch;
  out.index = index;
  return out;
}

// A model that records its input and the targets.
struct Seen : torch::nn::Module {
  at::Tensor input, logits;
  Outputs forward(const Batch& batch) {
    input = batch.input().clone();
    return logits.defined() ? logits : torch::zeros({input.size(0), input.size(1), kVocabulary});
  }
};

struct WatchedNet {
  std::shared_ptr<Seen> net = std::make_shared<Seen>();
  std::shared_ptr<Task> task;
  explicit WatchedNet(const MaskedLanguageModelOptions& options = masking()) {
    Model model = as_model(net);
    model.inputs = {{.name = "input", .dtype = at::kLong, .shape = {"batch", "tokens"}, .range = std::pair(0.0, double(kVocabulary))}};
    task = masked_language_model(model, options);
  }
  at::Tensor train(const ForwardContext& context) { return task->training_step(context), net->input; }
  at::Tensor validate(const ForwardContext& context) { return task->validation_step(context), net->input; }
};

}  // namespace

TEST_CASE("15 % of the tokens are chosen; of those 80 % are hidden, 10 % are random, 10 % stay") {
  const auto tokens = texts(400, 500);
  const auto masked = mask_tokens(tokens, torch::ones_like(tokens, at::kBool), masking(), kVocabulary, 3);
  const auto chosen = masked.target.ne(-100);
  CHECK(share(chosen, torch::ones_like(chosen)) == doctest::Approx(0.15).epsilon(0.02));
  CHECK(share(masked.input.eq(999), chosen) == doctest::Approx(0.8).epsilon(0.01));
  const auto random = masked.input.ne(999).logical_and(masked.input.ne(tokens)).logical_and(chosen);
  CHECK(share(random, chosen) == doctest::Approx(0.1).epsilon(0.05));
  CHECK(masked.target.eq(tokens).logical_or(chosen.logical_not()).all().item<bool>());
  CHECK(masked.input.eq(tokens).logical_or(chosen).all().item<bool>());
  // Random tokens come from the entire vocabulary.
  const auto drawn = masked.input.masked_select(random).to(at::kDouble);
  CHECK(drawn.mean().item<double>() == doctest::Approx(499.5).epsilon(0.03));
  CHECK(drawn.min().item<double>() < 10);
  CHECK(drawn.max().item<double>() > 990);
}

TEST_CASE("tokens that may not be chosen never are, and every sequence has one that is") {
  auto tokens = texts(300, 7);
  const auto maskable = torch::rand({300, 7}).lt(0.3);
  const auto masked = mask_tokens(tokens, maskable, masking(), kVocabulary, 4);
  const auto chosen = masked.target.ne(-100);
  CHECK_FALSE(chosen.logical_and(maskable.logical_not()).any().item<bool>());
  CHECK(masked.input.eq(tokens).logical_or(maskable).all().item<bool>());
  CHECK(at::equal(chosen.any(1), maskable.any(1)));
  CHECK_FALSE(maskable.any(1).all().item<bool>());  // some sequences have no maskable token
}

TEST_CASE("special tokens, padding and padded samples are not hidden; the weight is the number of hidden tokens") {
  WatchedNet watched;
  auto tokens = texts(8, 40);
  tokens.select(1, 0).fill_(1);
  tokens.select(1, 9).fill_(0);
  auto batch = batch_of(tokens);
  auto attention = torch::ones_like(tokens);
  attention.narrow(1, 20, 20).fill_(0);
  batch.set("attention_mask", attention);
  batch.set("mask", torch::cat({torch::ones({6}), torch::zeros({2})}));
  int64_t hidden = 0;
  for (int64_t i = 0; i < 50; ++i) {
    batch.index = i;
    const auto output = watched.task->training_step(batch);
    const auto target = output.outputs.at("masked_targets");
    const auto changed = target.ne(-100);
    CHECK(output.weight == changed.sum().item<double>());
    hidden += changed.sum().item<int64_t>();
    CHECK_FALSE(changed.narrow(1, 20, 20).any().item<bool>());
    CHECK_FALSE(changed.select(1, 0).any().item<bool>());
    CHECK_FALSE(changed.select(1, 9).any().item<bool>());
    CHECK_FALSE(changed.narrow(0, 6, 2).any().item<bool>());
    CHECK(watched.net->input.eq(tokens).logical_or(changed).all().item<bool>());
  }
  CHECK(static_cast<double>(hidden) / (50 * 6 * 18) == doctest::Approx(0.155).epsilon(0.1));
  batch.set("input", torch::zeros_like(tokens));
  CHECK(watched.task->training_step(batch).weight == 0);
}

TEST_CASE("the choice follows from seed, window, micro-batch, epoch and index; a validation always makes the same") {
  const auto tokens = texts(4, 60);
  WatchedNet one, two;
  const auto first = one.train(batch_of(tokens, 1, 7));
  CHECK(at::equal(first, two.train(batch_of(tokens, 1, 7))));
  CHECK_FALSE(at::equal(first, one.train(batch_of(tokens, 1, 8))));
  CHECK_FALSE(at::equal(first, one.train(batch_of(tokens, 2, 7))));
  auto options = masking();
  options.seed = 1;
  CHECK_FALSE(at::equal(first, WatchedNet(options).train(batch_of(tokens, 1, 7))));
  const auto in_window = [&](int64_t attempt, int64_t number) {
    const PortableRandom::MicroBatch position("training", attempt, number);
    return one.train({batch_of(tokens), position.key()});
  };
  CHECK(at::equal(in_window(3, 1), in_window(3, 1)));
  CHECK_FALSE(at::equal(in_window(3, 1), in_window(4, 1)));
  CHECK_FALSE(at::equal(in_window(3, 1), in_window(3, 2)));
  const auto validation = one.validate(batch_of(tokens, 1, 7));
  CHECK_FALSE(at::equal(validation, first));
  CHECK(at::equal(validation, two.validate({batch_of(tokens, 5, 7), /*draw_key=*/9})));
}

TEST_CASE("loss and accuracy are of the hidden tokens") {
  WatchedNet watched;
  const auto tokens = texts(3, 30);
  watched.net->logits = torch::randn({3, 30, kVocabulary});
  const auto batch = batch_of(tokens);
  const auto output = watched.task->training_step(batch);
  const auto target = output.outputs.at("masked_targets");
  const auto expected = torch::cross_entropy_loss(watched.net->logits.flatten(0, 1), target.flatten(), {}, at::Reduction::Mean, -100);
  CHECK(output.loss.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-6));
  CHECK(all_metric_names(*watched.task) == std::vector<std::string>{"acc", "perplexity"});
  const auto hidden = target.ne(-100).sum().item<float>();
  CHECK(at::equal(watched.task->metric_sums(output, batch), torch::tensor({{0.F}, {hidden}})));
  watched.net->logits.scatter_(2, tokens.unsqueeze(2), 100.0);
  CHECK(at::equal(watched.task->metric_sums(watched.task->training_step(batch), batch), torch::tensor({{100 * hidden}, {hidden}})));
  CHECK(watched.task->weight_unit() == "masked_tokens");
}

TEST_CASE("invalid input is one error each") {
  const auto says = [](const auto& run, const std::string& word) {
    const auto error = error_of(run);
    CHECK(((error.kind() == ErrorKind::Usage)));
    CHECK_MESSAGE(std::string(error.what()).find(word) != std::string::npos, error.what());
  };
  says([] { WatchedNet(MaskedLanguageModelOptions{}); }, "mask_token is -1");
  auto options = masking();
  options.random_share = 0.3;
  says([&] { WatchedNet{options}; }, "together at most 1");
  options = masking();
  options.mask_token = 1000;
  says([&] { WatchedNet(options).train(batch_of(texts(1, 4))); }, "mask_token is 1000; the vocabulary of");
  says([&] { WatchedNet().train(batch_of(torch::zeros({2, 3}))); }, "token ids, Long [batch, tokens]");
  WatchedNet classes;
  classes.net->logits = torch::zeros({2, 5});
  says([&] { classes.train(batch_of(torch::ones({2, 3}, at::kLong))); }, "model.num_classes=0");
}
