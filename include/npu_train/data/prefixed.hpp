/// Samples for a model with a prefix that it reads in both directions, such as GLM (models/glm.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "npu_train/core/config_table.hpp"
#include "npu_train/data/dataset.hpp"

namespace npu_train {

/// Text with a prefix. Of a sample of consecutive tokens a b c d e f, with a prefix of 3:
///
///   "input"    a    b    c    [gMASK]  bos  d  e  f
///   "target"   -100 -100 -100 -100     d    e  f  g
///
/// so that only what follows the prefix counts in the loss (-100 is ignore_index of the task language_model).
class PrefixedDataset final : public Dataset {
 public:
  /// `text` has samples of "input" and "target", int64 [tokens]: tokens, and the token that follows each. `prefix` is at least 1 and at
  /// most `tokens`; 0: of each sample another length, drawn from its index, the same in each epoch. Error(Usage) for other numbers, when a
  /// sample is read if only that shows it.
  PrefixedDataset(std::shared_ptr<const Dataset> text, int64_t prefix, int64_t gmask_token, int64_t bos_token);

  int64_t size() const override { return text_->size(); }
  /// Two tokens more than a sample of the text.
  Sample get(int64_t index) const override;
  DatasetInfo info() const override;
  std::string where(int64_t index) const override { return text_->where(index); }

 private:
  std::shared_ptr<const Dataset> text_;
  int64_t prefix_, gmask_, bos_;
};

/// The keys of a data set of text for it.
struct PrefixOptions {
  std::string prefix = "none";  ///< none, random, or its number of tokens
  int64_t gmask_token = -1;     ///< of the model
  int64_t bos_token = -1;
};

/// Tokens of text in a sample of `context` tokens: two are inserted if there is a prefix. Error(Usage) for values that are not allowed.
int64_t text_tokens(const PrefixOptions& options, int64_t context);
/// `text`, or with a prefix a PrefixedDataset of it. Null stays null.
std::shared_ptr<const Dataset> with_prefix(std::shared_ptr<const Dataset> text, const PrefixOptions& options);

template <class T>
ConfigTable<T> prefix_fields(ConfigTable<T> table) {
  using text = std::string;
  const auto token = between(-1, (1 << 24) - 1);
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<text>("prefix", &PrefixOptions::prefix,
                             "for GLM: of each sample this many tokens, or a random number of them, then gmask_token and bos_token are "
                             "a prefix that does not count in the loss; none, random or a number");
  table.template field<int64_t>("gmask_token", &PrefixOptions::gmask_token, "with a prefix: that of the model", token);
  table.template field<int64_t>("bos_token", &PrefixOptions::bos_token, "with a prefix: that of the model", token);
  return table;
}

}  // namespace npu_train
