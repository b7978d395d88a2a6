#include "npu_train/train/contrastive.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/rank_gather.hpp"
#include "npu_train/train/compares_ranks.hpp"

namespace npu_train {
namespace {

constexpr const char* kContrastive = "contrastive";
constexpr const char *kTextsOfImages = "texts_of_images", *kImagesOfTexts = "images_of_texts", *kFirstPair = "first_pair";

class Contrastive final : public ModelTask, public ComparesRanks {
 public:
  Contrastive(Model model, const ContrastiveOptions& options)
      : ModelTask(std::move(model), options.metrics.empty() ? recalls() : options.metrics) {}

  StepOutput training_step(const Batch& batch) override { return step(batch); }
  StepOutput validation_step(const Batch& batch) override { return step(batch); }

  // Nothing reads it: pair i of a batch belongs together.
  at::Tensor example_target(const Batch& inputs) const override { return at::zeros({inputs.size}, at::kLong); }

  // The host may exchange rows with other ranks.
  bool capturable() const override { return false; }

 private:
  // Of the own images (or texts), those whose text is among the k most similar ones; ties count against it.
  static Metric recall(const char* name, const char* logits, int64_t k) {
    const auto sums = [logits, k](const StepOutput& output, const Batch&) {
      const auto& all = output.outputs.at(logits);
      const auto own = at::arange(all.size(0), all.options().dtype(at::kLong)) + output.outputs.at(kFirstPair);
      return all.ge(all.gather(1, own.unsqueeze(1))).sum(1).le(k).to(at::kFloat).sum().mul_(100);
    };
    return {.name = name, .sums = sums};
  }

  static std::vector<Metric> recalls() {
    return {recall("text_recall1", kTextsOfImages, 1), recall("text_recall5", kTextsOfImages, 5),
            recall("image_recall1", kImagesOfTexts, 1), recall("image_recall5", kImagesOfTexts, 5)};
  }

  static at::Tensor features(const Outputs& outputs, const char* name, const Batch& batch) {
    check(outputs.has(name) && outputs.has("scale"), ErrorKind::Usage, kContrastive,
          "the model does not give image_features, text_features and scale; hint: use a clip with tower: both");
    const auto& all = outputs.at(name);
    check(all.dim() == 2 && all.size(0) == batch.rows(), ErrorKind::Usage, kContrastive, "the model gave ", name, " of ", all.sizes(),
          " for a batch of ", batch.rows(), "; allowed: [batch, features]");
    return all.narrow(0, 0, batch.size).to(at::kFloat);  // the rows after that are padding
  }

  StepOutput step(const Batch& batch) {
    const auto outputs = model_.forward(batch);
    const auto images = gathered(features(outputs, "image_features", batch)), texts = gathered(features(outputs, "text_features", batch));
    const auto scale = outputs.at("scale").to(at::kFloat);
    const auto logits = at::matmul(images.rows, texts.rows.t()) * scale;
    const auto own = at::arange(logits.size(0), logits.options().dtype(at::kLong).requires_grad(false));
    const auto loss = (at::cross_entropy_loss(logits, own) + at::cross_entropy_loss(logits.t(), own)) / 2;
    const auto seen = logits.detach();
    return {loss, static_cast<double>(batch.size),
            Outputs({{"logits", logits},
                     {kTextsOfImages, seen.narrow(0, images.first, batch.size)},
                     {kImagesOfTexts, seen.t().narrow(0, images.first, batch.size)},
                     {kFirstPair, at::zeros({}, own.options()).add_(images.first)}})};
  }
};

}  // namespace

std::shared_ptr<Task> contrastive(Model model, ContrastiveOptions options) {
  return std::make_shared<Contrastive>(std::move(model), options);
}

}  // namespace npu_train
