#include "npu_train/data/prefixed.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "data/pad_field.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {
namespace {

constexpr const char* kPrefix = "data.prefix";
constexpr int64_t kIgnored = -100;  // the default of LanguageModelOptions::ignore_index
constexpr int64_t kInserted = 2;    // [gMASK] and bos

at::Tensor text_field(const Sample& sample, const char* name) {
  const auto* found = detail::find_field(sample, name);
  check(found != nullptr && found->dim() == 1 && found->scalar_type() == at::kLong, ErrorKind::Usage, kPrefix, "sample ", sample.index,
        " has no '", name, "' of Long [tokens]; a prefix is for data sets of text");
  return *found;
}

// Returns the length of the prefix: 0 for a random one, nullopt for none.
std::optional<int64_t> prefix_of(const PrefixOptions& options) {
  if (options.prefix == "none") return std::nullopt;
  if (options.prefix == "random") return 0;
  const auto number = whole_number(options.prefix);
  check(number && *number >= 1, ErrorKind::Usage, kPrefix, "'", options.prefix, "'; allowed: none, random, or a number of at least 1");
  return *number;
}

}  // namespace

PrefixedDataset::PrefixedDataset(std::shared_ptr<const Dataset> text, int64_t prefix, int64_t gmask_token, int64_t bos_token)
    : text_(std::move(text)), prefix_(prefix), gmask_(gmask_token), bos_(bos_token) {
  check(text_ != nullptr && prefix_ >= 0, ErrorKind::Usage, kPrefix, prefix_, "; allowed: 0 for a random number, or at least 1");
  check(gmask_ >= 0 && bos_ >= 0, ErrorKind::Usage, kPrefix, "gmask_token is ", gmask_, " and bos_token ", bos_,
        "; hint: set data.gmask_token and data.bos_token to those of the model");
}

Sample PrefixedDataset::get(int64_t index) const {
  Sample sample = text_->get(index);
  const at::Tensor tokens = text_field(sample, "input"), next = text_field(sample, "target");
  const int64_t count = tokens.size(0);
  check(count == next.size(0) && prefix_ <= count && count >= 1, ErrorKind::Usage, kPrefix, prefix_, " tokens; sample ", index, " has ",
        count, " tokens and ", next.size(0), " targets");
  Philox random(derive_seed(0, "prefix", static_cast<uint64_t>(index)));
  const int64_t prefix = prefix_ > 0 ? prefix_ : 1 + random.below(static_cast<uint32_t>(count));
  const at::Tensor inserted = at::full({kInserted}, gmask_, at::kLong);
  inserted.mutable_data_ptr<int64_t>()[1] = bos_;
  // The token after bos is the original target of the prefix's last token.
  sample.fields = {{"input", at::cat({tokens.narrow(0, 0, prefix), inserted, tokens.narrow(0, prefix, count - prefix)})},
                   {"target", at::cat({at::full({prefix + 1}, kIgnored, at::kLong), next.narrow(0, prefix - 1, count - prefix + 1)})}};
  return sample;
}

DatasetInfo PrefixedDataset::info() const {
  DatasetInfo out = text_->info();
  if (out.shape.size() == 1 && out.shape[0] > 0) out.shape[0] += kInserted;
  return out;
}

int64_t text_tokens(const PrefixOptions& options, int64_t context) {
  const auto prefix = prefix_of(options);
  if (!prefix) return context;
  check(context >= kInserted + std::max<int64_t>(*prefix, 1), ErrorKind::Usage, kPrefix, "'", options.prefix, "' with a context of ",
        context, " tokens; allowed: at most context - 2, because gmask_token and bos_token follow");
  return context - kInserted;
}

std::shared_ptr<const Dataset> with_prefix(std::shared_ptr<const Dataset> text, const PrefixOptions& options) {
  const auto prefix = prefix_of(options);
  if (!prefix || text == nullptr) return text;
  return std::make_shared<PrefixedDataset>(std::move(text), *prefix, options.gmask_token, options.bos_token);
}

}  // namespace npu_train
