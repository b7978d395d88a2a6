#include "npu_train/data/image_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/data/sampler.hpp"

namespace npu_train {
namespace {

struct Fold {
  int64_t index, count;
};

Fold fold_of(const std::string& text) {
  const auto slash = text.find('/');
  const auto index = whole_number(text.substr(0, slash));
  const auto count = slash == std::string::npos ? std::nullopt : whole_number(text.substr(slash + 1));
  check(index && count && *count >= 2 && *index >= 1 && *index <= *count, ErrorKind::Usage, "data.fold", "is '", text,
        "'; allowed: I/N with N of at least 2 and I from 1 to N, as in 2/5");
  return {*index - 1, *count};
}

// Returns the samples of each class, in an order drawn from the seed.
std::map<int64_t, std::vector<int64_t>> shuffled_classes(const std::vector<int64_t>& labels, uint64_t seed) {
  std::map<int64_t, std::vector<int64_t>> out;
  for (size_t i = 0; i < labels.size(); ++i) out[labels[i]].push_back(static_cast<int64_t>(i));
  for (auto& [label, samples] : out) {
    const auto order = permutation(derive_seed(seed, "split", static_cast<uint64_t>(label)), 0, static_cast<int64_t>(samples.size()));
    std::vector<int64_t> shuffled;
    for (const auto i : order) shuffled.push_back(samples[static_cast<size_t>(i)]);
    samples = std::move(shuffled);
  }
  return out;
}

}  // namespace

SplitIndices split_by_class(const std::vector<int64_t>& labels, const SplitOptions& options) {
  check(options.val_split == 0 || options.fold.empty(), ErrorKind::Usage, "data.fold", "is ", options.fold, ", and data.val_split is ",
        options.val_split, "; allowed: one of them");
  check(options.val_split >= 0 && options.val_split < 1, ErrorKind::Usage, "data.val_split", "is ", options.val_split,
        "; allowed: at least 0, below 1");
  const auto fold = options.fold.empty() ? std::nullopt : std::optional(fold_of(options.fold));
  SplitIndices out;
  int64_t before = 0;  // samples of the classes before this one; counting over classes makes the total right, too
  for (const auto& [label, samples] : shuffled_classes(labels, static_cast<uint64_t>(options.split_seed))) {
    const auto count = static_cast<int64_t>(samples.size());
    const auto until = [&](int64_t n) { return std::llround(static_cast<double>(n) * options.val_split); };
    const int64_t held = std::min<int64_t>(until(before + count) - until(before), count - 1);
    for (int64_t i = 0; i < count; ++i) {
      const bool validates = fold ? (before + i) % fold->count == fold->index : i < held;
      (validates ? out.val : out.train).push_back(samples[static_cast<size_t>(i)]);
    }
    if (fold && count < fold->count)
      log_warning("data.fold=", options.fold, ": class ", label, " has only ", count, count == 1 ? " sample" : " samples",
                  ", so that some folds have none of it");
    before += count;
  }
  check(!out.train.empty() && !out.val.empty(), ErrorKind::Usage, fold ? "data.fold" : "data.val_split", "leaves ", out.train.size(),
        " of ", labels.size(), " samples for training and ", out.val.size(), " for validation; allowed: at least 1 each");
  std::sort(out.train.begin(), out.train.end());
  std::sort(out.val.begin(), out.val.end());
  return out;
}

ImageSubset::ImageSubset(std::shared_ptr<const ImageDataset> images, std::vector<int64_t> indices)
    : images_(std::move(images)), indices_(std::move(indices)) {
  for (const auto index : indices_)
    check(index >= 0 && index < images_->size(), ErrorKind::Usage, "ImageSubset", "index ", index, " of ", images_->size(), " images");
}

std::pair<std::shared_ptr<const ImageDataset>, std::shared_ptr<const ImageDataset>> split_images(
    const std::shared_ptr<const ImageDataset>& images, const SplitOptions& options) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < images->size(); ++i) {
    labels.push_back(images->targets() > 0 ? 0 : images->label(i));
    check(labels.back() >= 0, ErrorKind::Usage, "data", "the data set does not know the class of image ", i,
          ", by which they are divided; hint: Dataset::label()");
  }
  auto [train, val] = split_by_class(labels, options);
  return {std::make_shared<ImageSubset>(images, std::move(train)), std::make_shared<ImageSubset>(images, std::move(val))};
}

}  // namespace npu_train
