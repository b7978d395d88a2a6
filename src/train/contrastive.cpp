#include "npu_train/train/contrastive.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/rank_gather.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {
namespace {

constexpr const char* kContrastive = "contrastive";
constexpr const char *kImages = "image_features", *kTexts = "text_features";
constexpr const char *kTextsOfImages = "texts_of_images", *kImagesOfTexts = "images_of_texts", *kFirstPair = "first_pair";

class Contrastive final : public ModelTask, public ComparesRanks {
 public:
  Contrastive(Model model, const ContrastiveOptions& options)
      : ModelTask(std::move(model), options.metrics.empty() ? recalls() : options.metrics), has_recalls_(options.metrics.empty()) {}

  StepOutput training_step(const ForwardContext& context) override { return step(context); }
  StepOutput validation_step(const ForwardContext& context) override { return step(context); }

  // Nothing reads the targets: image i of a batch belongs to text i.
  at::Tensor example_target(const Batch& inputs) const override { return at::zeros({inputs.size}, at::kLong); }

  // The host may exchange rows with other ranks.
  bool capturable() const override { return false; }

  std::vector<std::string> epoch_metric_names() const override { return has_recalls_ ? metric_names() : ModelTask::epoch_metric_names(); }

  // Returns a row for each pair: the features of its image and of its text.
  at::Tensor epoch_rows(const StepOutput& output, const Batch& batch) const override {
    if (!has_recalls_) return ModelTask::epoch_rows(output, batch);
    return at::cat({output.outputs.at(kImages), output.outputs.at(kTexts)}, 1);
  }

  // Computes the products in blocks, because all products together would need memory for the square of the number of pairs.
  std::vector<double> epoch_sums(const at::Tensor& rows, int64_t first, int64_t count) const override {
    if (!has_recalls_) return ModelTask::epoch_sums(rows, first, count);
    constexpr int64_t kAtOnce = 256;
    const auto halves = rows.chunk(2, 1);
    std::vector<double> sums;
    for (const bool of_images : {true, false}) {
      std::vector<double> found(kRecalls.size());
      const at::Tensor from = halves[of_images ? 0 : 1], to = halves[of_images ? 1 : 0].t();
      for (int64_t k = first; k < first + count; k += kAtOnce) {
        const auto n = std::min(kAtOnce, first + count - k);
        const auto products = at::matmul(from.narrow(0, k, n), to);
        for (size_t r = 0; r < kRecalls.size(); ++r)
          found[r] += hits(products, at::arange(k, k + n, at::kLong), kRecalls[r]).item<double>();
      }
      for (const double hits : found) sums.push_back(100 * hits);
    }
    return sums;
  }

 private:
  static constexpr std::array<int64_t, 2> kRecalls = {1, 5};

  // Returns for how many rows of `products` the element in column `own` is among the k largest; ties count against it.
  static at::Tensor hits(const at::Tensor& products, const at::Tensor& own, int64_t k) {
    const auto rank = products.ge(products.gather(1, own.unsqueeze(1))).sum(1);  // the rank, from 1; 0 for a NaN
    return rank.ge(1).logical_and_(rank.le(k)).to(at::kFloat).sum();
  }

  // Returns the metric: the share of this rank's images (or texts) whose text (or image) is among the k most similar ones.
  static Metric recall(const std::string& name, const char* logits, int64_t k) {
    const auto sums = [logits, k](const StepOutput& output, const Batch&) {
      const auto& all = output.outputs.at(logits);
      const auto own = at::arange(all.size(0), all.options().dtype(at::kLong)) + output.outputs.at(kFirstPair);
      return hits(all, own, k).mul_(100);
    };
    return {.name = name, .sums = sums};
  }

  static std::vector<Metric> recalls() {
    std::vector<Metric> out;  // in the order of epoch_sums()
    for (const auto k : kRecalls) out.push_back(recall("text_recall" + std::to_string(k), kTextsOfImages, k));
    for (const auto k : kRecalls) out.push_back(recall("image_recall" + std::to_string(k), kImagesOfTexts, k));
    return out;
  }

  static at::Tensor features(const Outputs& outputs, const char* name, const Batch& batch) {
    check(outputs.has(name) && outputs.has("scale"), ErrorKind::Usage, kContrastive,
          "the model does not give image_features, text_features and scale; hint: use a clip with tower: both");
    const auto& all = outputs.at(name);
    check(all.dim() == 2 && all.size(0) == batch.rows(), ErrorKind::Usage, kContrastive, "the model gave ", name, " of ", all.sizes(),
          " for a batch of ", batch.rows(), "; allowed: [batch, features]");
    return all.narrow(0, 0, batch.size).to(at::kFloat);  // the rows after batch.size are padding
  }

  StepOutput step(const ForwardContext& context) {
    const auto& batch = context.batch();
    const auto outputs = model_.forward(context);
    const auto own_images = features(outputs, "image_features", batch), own_texts = features(outputs, "text_features", batch);
    const auto images = gathered(context, own_images), texts = gathered(context, own_texts);
    const auto scale = outputs.at("scale").to(at::kFloat);
    const auto logits = at::matmul(images.rows, texts.rows.t()) * scale;
    const auto own = at::arange(logits.size(0), logits.options().dtype(at::kLong).requires_grad(false));
    const auto loss = (at::cross_entropy_loss(logits, own) + at::cross_entropy_loss(logits.t(), own)) / 2;
    const auto seen = logits.detach();
    return {loss, static_cast<double>(batch.size),
            Outputs({{"logits", logits},
                     {kTextsOfImages, seen.narrow(0, images.first, batch.size)},
                     {kImagesOfTexts, seen.t().narrow(0, images.first, batch.size)},
                     {kFirstPair, at::zeros({}, own.options()).add_(images.first)},
                     {kImages, own_images.detach()},
                     {kTexts, own_texts.detach()}})};
  }

  bool has_recalls_;
};

}  // namespace

std::shared_ptr<Task> contrastive(Model model, ContrastiveOptions options) {
  return std::make_shared<Contrastive>(std::move(model), options);
}

}  // namespace npu_train
