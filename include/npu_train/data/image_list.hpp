/// Images that a file lists, with a class, several classes, or numbers for each: a .csv with a header, or a .jsonl.
///
///   image,label                  image,tags            image,x,y
///   day1/cat.jpg,cat             a.jpg,cat;indoor      a.jpg,0.5,12
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/split.hpp"

namespace npu_train {

/// The columns of a .csv, or the keys of a .jsonl. One of `label`, `labels` and `values` is given.
struct ImageListColumns {
  std::string image = "image";        ///< path of an image file (see ImageFolder), relative to the root
  std::string label{};                ///< one class, by name
  std::string labels{};               ///< any number of classes: names joined by `separator`, or a list in a .jsonl
  std::vector<std::string> values{};  ///< numbers: one column for each
  std::string separator = ";";
};

/// Targets are the number of the class; with several classes 0 or 1 for each, and with `values` the numbers, fp32 [targets()].
class ImageList final : public ImageDataset {
 public:
  /// `classes`: those of the training data; empty: those of this file, in alphabetical order, or by number if all names are numbers.
  /// Error(Data) with the line for a missing column or key, an image outside of `root` or of another kind, an empty label, a class that is
  /// not among `classes`, a value that is not a finite number; for no line at all; and if the file cannot be read. The images are opened
  /// when they are used.
  ImageList(std::string root, const std::string& file, ImageListColumns columns, std::vector<std::string> classes = {});

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  LabelledImage image(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;
  int64_t label(int64_t index) const override { return columns_.label.empty() ? -1 : rows_.at(static_cast<size_t>(index)).first; }
  int64_t targets() const override { return columns_.label.empty() ? info_.num_classes : 0; }
  bool has_numbers() const override { return !columns_.values.empty(); }

 private:
  // `first` and `count`: with `label` the class; otherwise a part of numbers_ or labels_.
  struct Row {
    std::string image;
    int32_t first = 0, count = 0;
  };
  struct Reading;

  std::string root_, file_;
  ImageListColumns columns_;
  DatasetInfo info_;
  std::vector<Row> rows_;
  std::vector<int32_t> labels_;
  std::vector<float> numbers_;
};

struct ImageListOptions : DataOptions, SplitOptions, ImageListColumns {
  std::string root = "data/images", train{}, val{}, test{};
  ImageListOptions();
  static const ConfigTable<ImageListOptions>& config_table();
};

}  // namespace npu_train
