#include "npu_train/train/language_model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/nn/cross_entropy.hpp"
#include "train/metric_parts.hpp"

namespace npu_train {
namespace {

constexpr const char* kLanguageModel = "language_model";

class LanguageModel final : public ModelTask {
 public:
  LanguageModel(Model model, const LanguageModelOptions& options)
      : ModelTask(std::move(model), metrics_of(options)), loss_{options.ignore_index, options.label_smoothing} {}

  StepOutput training_step(const ForwardContext& context) override {
    auto outputs = model_.forward(context);
    const auto& logits = outputs.first();
    const auto targets = counted_targets(context.batch(), loss_.ignore_index);
    check_shapes(logits, targets);
    const auto tokens = targets.ne(loss_.ignore_index).sum().item<int64_t>();
    auto loss = blocked_cross_entropy(logits, targets, loss_);
    return {std::move(loss), static_cast<double>(tokens), std::move(outputs)};
  }

  double weight_of(int64_t samples) const override {
    const auto* text = text_input();
    return static_cast<double>(samples * (text != nullptr ? text->usual("tokens").value_or(1) : 1));
  }

  at::Tensor example_target(const Batch& inputs) const override {
    const auto* text = text_input();
    check(text != nullptr && text->range && text->range->second >= 1, ErrorKind::Usage, kLanguageModel, "the model '", model_.name,
          "' does not give its vocabulary; hint: set the range of its input (Model::inputs)");
    return at::randint(static_cast<int64_t>(text->range->second), inputs.at(text->name).sizes(), at::kLong);
  }

  std::string weight_unit() const override { return "tokens"; }

  // The host reads the number of tokens.
  bool capturable() const override { return false; }

 private:
  // Returns the first input of token ids; nullptr if there is none.
  const InputSpec* text_input() const {
    const auto found = std::find_if(model_.inputs.begin(), model_.inputs.end(), [](const InputSpec& i) { return i.dtype == at::kLong; });
    return found != model_.inputs.end() ? &*found : nullptr;
  }

  static std::vector<Metric> metrics_of(const LanguageModelOptions& options) {
    if (!options.metrics.empty()) return options.metrics;
    const auto targets = [ignore = options.ignore_index](const StepOutput&, const Batch& batch) { return counted_targets(batch, ignore); };
    return {detail::token_accuracy(options.ignore_index, targets), perplexity()};
  }

  // Returns the token that follows each input token; `ignore` after the end of the text, and for tokens that do not count.
  static at::Tensor next_tokens(const Batch& batch, int64_t ignore) {
    const auto& tokens = batch.input();
    check(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, ErrorKind::Usage, kLanguageModel,
          "the batch has no 'target', and its input ", c10::toString(tokens.scalar_type()), " ", tokens.sizes(),
          " is not a text to predict; allowed: token ids, Long [batch, tokens]");
    auto target = at::full_like(tokens, ignore);
    const auto count = tokens.size(1);
    auto next = target.narrow(1, 0, count - 1);
    next.copy_(tokens.narrow(1, 1, count - 1));
    check(!batch.has("prompt"), ErrorKind::Usage, kLanguageModel,
          "the batch has 'prompt', whose place 'loss_mask' has taken: Long [batch, tokens], 1 for each token that counts; hint: rename it");
    if (batch.has("attention_mask")) next.masked_fill_(batch.at("attention_mask").narrow(1, 1, count - 1).eq(0), ignore);
    if (batch.has("loss_mask")) next.masked_fill_(batch.at("loss_mask").narrow(1, 1, count - 1).eq(0), ignore);
    return target;
  }

  // Returns the targets, with `ignore` for those of padded samples.
  static at::Tensor counted_targets(const Batch& batch, int64_t ignore) {
    const auto targets = batch.has("target") ? batch.target() : next_tokens(batch, ignore);
    return batch.has("mask") ? targets.masked_fill(batch.at("mask").eq(0).unsqueeze(1), ignore) : targets;
  }

  void check_shapes(const at::Tensor& logits, const at::Tensor& targets) const {
    check(logits.dim() == 3 && targets.dim() == 2 && targets.scalar_type() == at::kLong && logits.sizes().slice(0, 2) == targets.sizes(),
          ErrorKind::Usage, kLanguageModel, "the model gave ", logits.sizes(), " for targets of ", c10::toString(targets.scalar_type()),
          " ", targets.sizes(), "; a language model gives [batch, tokens, vocabulary] for targets of Long [batch, tokens]");
    if (!targets.is_cpu()) return;
    const auto ids = targets.accessor<int64_t, 2>();
    for (int64_t i = 0; i < ids.size(0); ++i)
      for (int64_t k = 0; k < ids.size(1); ++k)
        check(ids[i][k] == loss_.ignore_index || (ids[i][k] >= 0 && ids[i][k] < logits.size(2)), ErrorKind::Data, kLanguageModel, "target ",
              k, " of sequence ", i, " is ", ids[i][k], "; allowed: 0 to ", logits.size(2) - 1, ", and ignore_index (", loss_.ignore_index,
              ")");
  }

  CrossEntropyOptions loss_;
};

}  // namespace

std::shared_ptr<Task> language_model(Model model, LanguageModelOptions options) {
  return std::make_shared<LanguageModel>(std::move(model), options);
}

namespace {

constexpr const char *kMaskedModel = "masked_language_model", *kTargets = "masked_targets";
constexpr int64_t kNotPredicted = -100;

void check_masking(const MaskedLanguageModelOptions& o) {
  check(o.mask_token >= 0, ErrorKind::Usage, kMaskedModel, "mask_token is ", o.mask_token,
        "; allowed: a token of the vocabulary that no text has; hint: task.mask_token=103 for BERT's vocabulary, 256 for bytes");
  for (const auto& [name, value] : {std::pair("mask_probability", o.mask_probability), std::pair("mask_share", o.mask_share),
                                    std::pair("random_share", o.random_share)})
    check(value >= 0 && value <= 1, ErrorKind::Usage, kMaskedModel, name, " is ", value, "; allowed: 0 to 1");
  check(o.mask_probability > 0 && o.mask_share + o.random_share <= 1 + 1e-9, ErrorKind::Usage, kMaskedModel, "mask_probability is ",
        o.mask_probability, ", mask_share ", o.mask_share, " and random_share ", o.random_share,
        "; the first must be above 0, the two shares together at most 1");
}

class MaskedLanguageModel final : public ModelTask {
 public:
  MaskedLanguageModel(Model model, MaskedLanguageModelOptions options)
      : ModelTask(std::move(model), metrics_of(options)), options_(std::move(options)) {
    check_masking(options_);
  }

  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    const auto drawn = derive_seed(options_.seed, "masked tokens", static_cast<uint64_t>(batch.epoch), static_cast<uint64_t>(batch.index));
    return step(context, derive_seed(drawn, "training", context.draw_key()));
  }

  StepOutput validation_step(const ForwardContext& context) override {
    return step(context, derive_seed(options_.seed, "masked tokens of a validation", static_cast<uint64_t>(context.batch().index)));
  }

  double weight_of(int64_t samples) const override {
    const auto tokens = model_.inputs.empty() ? std::nullopt : model_.inputs.front().usual("tokens");
    return static_cast<double>(samples * tokens.value_or(1)) * options_.mask_probability;
  }

  // Nothing reads the targets: the task predicts the input's own tokens.
  at::Tensor example_target(const Batch& inputs) const override { return inputs.input(); }

  std::string weight_unit() const override { return "masked_tokens"; }

  // The host counts the hidden tokens, and draws random numbers.
  bool capturable() const override { return false; }

 private:
  static std::vector<Metric> metrics_of(const MaskedLanguageModelOptions& options) {
    if (!options.metrics.empty()) return options.metrics;
    const auto targets = [](const StepOutput& output, const Batch&) { return output.outputs.at(kTargets); };
    return {detail::token_accuracy(kNotPredicted, targets), perplexity()};
  }

  int64_t vocabulary() const {
    const auto range = model_.inputs.empty() ? std::nullopt : model_.inputs.front().range;
    check(range && range->second >= 1, ErrorKind::Usage, kMaskedModel, "the model '", model_.name, "' does not give its vocabulary; ",
          "hint: set the range of its input (Model::inputs)");
    const auto size = static_cast<int64_t>(range->second);
    check(options_.mask_token < size, ErrorKind::Usage, kMaskedModel, "mask_token is ", options_.mask_token, "; the vocabulary of '",
          model_.name, "' has ", size, " tokens; hint: set model.vocab_size above it");
    return size;
  }

  at::Tensor maskable(const Batch& batch) const {
    const auto& tokens = batch.input();
    at::Tensor out = batch.has("attention_mask") ? batch.at("attention_mask").ne(0) : at::ones_like(tokens, at::kBool);
    for (const auto token : options_.special_tokens) out = out.logical_and(tokens.ne(token));
    return batch.has("mask") ? out.logical_and(batch.at("mask").ne(0).unsqueeze(1)) : out;
  }

  StepOutput step(const ForwardContext& context, uint64_t key) {
    const auto& batch = context.batch();
    check(batch.input().dim() == 2 && batch.input().scalar_type() == at::kLong, ErrorKind::Usage, kMaskedModel, "the input is ",
          c10::toString(batch.input().scalar_type()), " ", batch.input().sizes(), "; allowed: token ids, Long [batch, tokens]");
    const auto masked = mask_tokens(batch.input(), maskable(batch), options_, vocabulary(), key);
    Batch hidden = batch;
    hidden.set("input", masked.input);
    const auto outputs = model_.forward(context.with(hidden));
    const auto& logits = outputs.first();
    check(logits.dim() == 3 && logits.sizes().slice(0, 2) == masked.target.sizes(), ErrorKind::Usage, kMaskedModel, "the model gave ",
          logits.sizes(), " for tokens ", masked.target.sizes(),
          "; this task needs [batch, tokens, vocabulary]; hint: model.num_classes=0, or task={name: classifier} for classes of texts");
    auto loss = blocked_cross_entropy(logits, masked.target, {.ignore_index = kNotPredicted});
    const auto count = masked.target.ne(kNotPredicted).sum().item<int64_t>();
    auto fields = outputs.fields();
    fields.emplace_back(kTargets, masked.target);
    return {std::move(loss), static_cast<double>(count), Outputs(std::move(fields))};
  }

  MaskedLanguageModelOptions options_;
};

}  // namespace

MaskedTokens mask_tokens(const at::Tensor& tokens, const at::Tensor& maskable, const MaskedLanguageModelOptions& options,
                         int64_t vocabulary, uint64_t key) {
  const PortableRandom random(key);
  const auto uniform = [&] { return PortableRandom::uniform(tokens.sizes(), tokens.device()); };
  const at::Tensor which = uniform().masked_fill(maskable.logical_not(), 2.0), how = uniform(), token = uniform();
  const at::Tensor chosen = which.lt(options.mask_probability).logical_or(which.eq(which.amin(1, /*keepdim=*/true))).logical_and(maskable);
  const at::Tensor drawn = (token * static_cast<double>(vocabulary)).to(at::kLong).clamp_max(vocabulary - 1);
  const double random_until = options.mask_share + options.random_share;
  at::Tensor input = at::where(chosen.logical_and(how.lt(random_until)), drawn, tokens);
  input = input.masked_fill(chosen.logical_and(how.lt(options.mask_share)), options.mask_token);
  return {input, tokens.masked_fill(chosen.logical_not(), kNotPredicted)};
}

std::shared_ptr<Task> masked_language_model(Model model, MaskedLanguageModelOptions options) {
  return std::make_shared<MaskedLanguageModel>(std::move(model), std::move(options));
}

}  // namespace npu_train
