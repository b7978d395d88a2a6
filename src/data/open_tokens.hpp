// Opens the data sets of text.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/generated.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/data/tokens.hpp"

namespace npu_train::detail {

// Error(Usage) for mixing, which applies to classes of images, and for transforms of data without images.
DatasetPair open_tokens(const TokensOptions& options);
DatasetPair open_documents(const DocumentsOptions& options);
DatasetPair open_image_text(const ImageTextOptions& options, const TransformRegistry& transforms);
DatasetPair open_image_questions(const ImageQuestionsOptions& options, const TransformRegistry& transforms);
DatasetPair open_generated_text(const GeneratedTextOptions& options);

// Error(Usage) if `options` have transforms or mixing.
void check_no_images(const DataOptions& options);

// Error(Usage) if no training files are named, or both val and val_fraction are given.
void check_split(const std::string& train, const std::string& val, double val_fraction);

// Uses `all` as the training data. With a `val_fraction` above 0, this share at the end of `all` becomes the validation data instead.
template <class Data>
void split_off_validation(DatasetPair& pair, const std::shared_ptr<Data>& all, double val_fraction) {
  pair.train = all;
  if (val_fraction <= 0) return;
  const auto val = std::max<int64_t>(1, static_cast<int64_t>(val_fraction * static_cast<double>(all->size())));
  check(val < all->size(), ErrorKind::Data, "data.val_fraction", val_fraction, " of ", all->size(),
        " samples leaves none for the training; hint: reduce data.context, or give more text");
  pair.train = all->part(0, all->size() - val);
  pair.val = all->part(all->size() - val, val);
}

// Error(Data) if the train.bin and val.bin of one folder, as `npu_tool tokenize` writes them, are from two calls. This happens if the
// second call is killed after it has written one of the files.
void check_written_together(const std::vector<std::string>& train, const std::vector<std::string>& val);

void warn_without_validation(const DatasetPair& pair);

}  // namespace npu_train::detail
