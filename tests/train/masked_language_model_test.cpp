#include "testing.hpp"

#include "npu_train/train/masked_language_model.hpp"

#include <cmath>

#include "npu_train/device/portable_random.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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
