/// Images with captions, from a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/picture_dataset.hpp"

namespace npu_train {

/// Images of which each has a text. The Loader adds the texts of a batch as "tokens", int64 [batch, tokens]: filled up to the longest one,
/// or to the longest possible one if shapes must not change.
class CaptionedPictures : public PictureDataset {
 public:
  /// At least one token. Called from several threads at once.
  virtual std::vector<int64_t> caption(int64_t index) const = 0;
  virtual int64_t padding() const = 0;  ///< the id that fills
  virtual int64_t longest() const = 0;  ///< tokens
};

/// The pairs of a file with one JSON object in a line, {"image": "a.jpg", "text": "..."}: images (.jpg, .jpeg, .png) by their path in
/// `root`, with a text, or "tokens" in its place, as in LabelledTexts. An image may have several lines.
class ImageText final : public CaptionedPictures {
 public:
  /// Error(Data) with file and line for a line that is not such an object, for a name that leads out of `root` or is no image, for an image
  /// that does not exist, and for a bad text; the last two are omitted and counted if rules.skip_bad. Error(Data) if no pair remains.
  ImageText(const std::string& root, const std::vector<std::string>& files, const DocumentRules& rules);

  int64_t size() const override { return size_; }
  Picture picture(int64_t index) const override;
  std::vector<int64_t> caption(int64_t index) const override;
  DatasetInfo info() const override;
  std::string where(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  const DocumentCounts& counts() const { return counts_; }
  int64_t missing_images() const { return missing_; }
  /// Paths in `root` of all images that the lines name, sorted.
  std::vector<std::string> images() const;
  std::shared_ptr<ImageText> part(int64_t first, int64_t count) const;

 private:
  struct Pairs;

  std::string root_;
  DocumentRules rules_;
  DocumentCounts counts_;
  int64_t missing_ = 0;
  std::shared_ptr<const Pairs> pairs_;
  int64_t first_ = 0, size_ = 0;
};

struct ImageTextOptions : DataOptions {
  std::string root;
  std::string train = "train.jsonl";  ///< file of the training pairs, in root
  std::string val;                    ///< that of the validation; empty: val_fraction
  double val_fraction = 0;
  int64_t context = 77;
  std::string long_documents = "error";
  int64_t begin_token = -1;
  int64_t end_token = 0;
  int64_t pad_token = 0;
  int64_t vocab_size = 0;
  ImageTextOptions();
  static const ConfigTable<ImageTextOptions>& config_table();
};

}  // namespace npu_train
