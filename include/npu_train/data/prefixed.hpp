/// Samples for a model with a prefix that it reads in both directions, such as GLM (models/glm.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "npu_train/core/config_table.hpp"
#include "npu_train/data/dataset.hpp"

namespace npu_train {

/// Text with a prefix. Example: consecutive tokens a b c d e f with a prefix of 3:
///
///   "input"    a    b    c    [gMASK]  bos  d  e  f
///   "target"   -100 -100 -100 -100     d    e  f  g
///
/// Only the tokens after the prefix count in the loss (-100 is the ignore_index of the task language_model).
class PrefixedDataset final : public Dataset {
 public:
  /// `text` has samples of "input" and "target", int64 [tokens]: tokens, and the token that follows each. `prefix` is 1 to `tokens`, or 0
  /// for a length drawn from each sample's index, the same in each epoch. Error(Usage) for other values; get() throws it if the value
  /// exceeds the sample.
  PrefixedDataset(std::shared_ptr<const Dataset> text, int64_t prefix, int64_t gmask_token, int64_t bos_token);

  int64_t size() const override { return text_->size(); }
  /// Returns a sample with two tokens more than in the text.
  Sample get(int64_t index) const override;
  DatasetInfo info() const override;
  std::string where(int64_t index) const override { return text_->where(index); }

 private:
  std::shared_ptr<const Dataset> text_;
  int64_t prefix_, gmask_, bos_;
};

/// Keys of the prefix for data sets of text.
struct PrefixOptions {
  std::string prefix = "none";  ///< none, random, or a number of tokens
  int64_t gmask_token = -1;     ///< id in the model's vocabulary
  int64_t bos_token = -1;
};

/// Returns how many tokens of text a sample of `context` tokens has: with a prefix, two less. Error(Usage) for invalid options.
int64_t text_tokens(const PrefixOptions& options, int64_t context);
/// Wraps `text` in a PrefixedDataset if there is a prefix. Null stays null.
std::shared_ptr<const Dataset> with_prefix(std::shared_ptr<const Dataset> text, const PrefixOptions& options);

template <class T>
ConfigTable<T> prefix_fields(ConfigTable<T> table) {
  using text = std::string;
  const auto token = between(-1, (1 << 24) - 1);
  // Explicit type arguments: a member of a base class would not be deduced as a member of T.
  table.template field<text>("prefix", &PrefixOptions::prefix,
                             "for GLM: of each sample this many tokens, or a random number of them, then gmask_token and bos_token are "
                             "a prefix that does not count in the loss; none, random or a number");
  table.template field<int64_t>("gmask_token", &PrefixOptions::gmask_token, "with a prefix: that of the model", token);
  table.template field<int64_t>("bos_token", &PrefixOptions::bos_token, "with a prefix: that of the model", token);
  return table;
}

}  // namespace npu_train
