/// Divides labelled images into training and validation data, by a seed and by class.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {

/// What is held out of the training data for validation. At most one of `val_split` and `fold` is set.
struct SplitOptions {
  double val_split = 0;    ///< fraction of each class; 0: none
  std::string fold{};      ///< "I/N": part I of N equal parts of each class, I from 1 (cross-validation); empty: none
  int64_t split_seed = 0;  ///< which images are held out depends only on this seed, the labels and the order of the images

  bool any() const { return val_split > 0 || !fold.empty(); }
};

/// Indices in ascending order; each index is in one of the lists.
struct SplitIndices {
  std::vector<int64_t> train, val;
};

/// Divides samples 0, 1, ... with these labels. Stratified: a class with n samples gives n * val_split of them to validation, or n / N to a
/// fold, rounded up or down so that the same holds for the total; val_split leaves each class one training sample. The N folds are
/// disjoint and contain all samples. Error(Usage) for options out of range, and if no sample is left for training or for validation.
SplitIndices split_by_class(const std::vector<int64_t>& labels, const SplitOptions& options);

/// Some images of a data set, in the order of the indices.
class ImageSubset final : public ImageDataset {
 public:
  /// Error(Usage) for an index outside of the data set.
  ImageSubset(std::shared_ptr<const ImageDataset> images, std::vector<int64_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  LabelledImage image(int64_t index) const override { return images_->image(indices_.at(static_cast<size_t>(index))); }
  DatasetInfo info() const override { return images_->info(); }
  std::string where(int64_t index) const override { return images_->where(indices_.at(static_cast<size_t>(index))); }
  int64_t label(int64_t index) const override { return images_->label(indices_.at(static_cast<size_t>(index))); }
  int64_t targets() const override { return images_->targets(); }
  bool has_numbers() const override { return images_->has_numbers(); }

 private:
  std::shared_ptr<const ImageDataset> images_;
  std::vector<int64_t> indices_;
};

/// Returns the images for training, and those for validation; images with targets() in place of labels are divided as one class.
/// Error(Usage) as in split_by_class, also if the labels are not known.
std::pair<std::shared_ptr<const ImageDataset>, std::shared_ptr<const ImageDataset>> split_images(
    const std::shared_ptr<const ImageDataset>& images, const SplitOptions& options);

/// Adds the keys of SplitOptions to the options of a data set.
template <class T>
ConfigTable<T> split_fields(ConfigTable<T> table) {
  const auto add = [&table]<class V>(const char* name, V SplitOptions::*member, const char* doc, Bounds bounds = {}) {
    table.field(name, static_cast<V T::*>(member), doc, std::move(bounds));
  };
  add("val_split", &SplitOptions::val_split, "fraction of the training images that is held out for validation, of each class; 0: none",
      between(0, 0.9));
  add("fold", &SplitOptions::fold, "holds out part I of N equal parts of each class, as in 2/5 (cross-validation); empty: none");
  add("split_seed", &SplitOptions::split_seed, "seed of val_split and fold", at_least(0));
  table.synonym("val_fraction", "val_split");
  return table;
}

}  // namespace npu_train
