#include "npu_train/train/language_model.hpp"

#include <ATen/TensorOperators.h>
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

  StepOutput training_step(const Batch& batch) override {
    auto outputs = model_.forward(batch);
    const auto& logits = outputs.first();
    check_shapes(logits, batch);
    const auto targets =
        batch.has("mask") ? batch.target().masked_fill(batch.at("mask").eq(0).unsqueeze(1), loss_.ignore_index) : batch.target();
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

  // The host counts the tokens.
  bool capturable() const override { return false; }

 private:
  // The first input of ids; nullptr if there is none.
  const InputSpec* text_input() const {
    const auto found = std::find_if(model_.inputs.begin(), model_.inputs.end(), [](const InputSpec& i) { return i.dtype == at::kLong; });
    return found != model_.inputs.end() ? &*found : nullptr;
  }

  static std::vector<Metric> metrics_of(const LanguageModelOptions& options) {
    if (!options.metrics.empty()) return options.metrics;
    const auto sums = [ignore = options.ignore_index](const StepOutput& output, const Batch& batch) {
      return detail::unmasked(detail::token_accuracy(output.outputs.first().detach(), batch.target(), ignore), batch).sum();
    };
    return {{.name = "acc", .sums = sums}, perplexity()};
  }

  void check_shapes(const at::Tensor& logits, const Batch& batch) const {
    const auto& targets = batch.target();
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
