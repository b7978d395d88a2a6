#include "npu_train/train/language_model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
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

  // Returns the token that follows each input token; ignored after the end of the text, and if it does not count.
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

}  // namespace npu_train
