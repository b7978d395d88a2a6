#include "data/open_tokens.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train::detail {
void check_no_images(const DataOptions& options) {
  const bool transforms = !options.train_transforms.empty() || !options.val_transforms.empty();
  check(!transforms && options.augment_on == "host" && options.mixup_alpha == 0 && options.cutmix_alpha == 0, ErrorKind::Usage, "data",
        "transforms, augment_on: device, mixup and cutmix are for images; hint: remove them, since the data are text");
}

void check_split(const std::string& train, const std::string& val, double val_fraction) {
  check(!train.empty(), ErrorKind::Usage, "data.train",
        "no files are named; allowed: a file of tokens, a folder with .bin files, or a pattern; hint: data.train=data/train_*.bin");
  check(val.empty() || val_fraction == 0, ErrorKind::Usage, "data.val_fraction", val_fraction,
        " together with data.val; allowed: one of them");
}

void warn_without_validation(const DatasetPair& pair) {
  if (pair.val == nullptr) log_warning("neither data.val nor data.val_fraction is set; the run does not validate");
}

namespace {

std::shared_ptr<TokenDataset> open_files(const std::string& pattern, const TokensOptions& options) {
  std::vector<TokenFile> files;
  for (const auto& path : token_files(pattern)) files.emplace_back(path, options.dtype);
  return std::make_shared<TokenDataset>(std::move(files), text_tokens(options, options.context), options.vocab_size);
}

// Returns samples of consecutive bytes; the target is the byte after each.
std::shared_ptr<const Dataset> bytes_as_tokens(const std::string& text, int64_t context) {
  const auto count = (static_cast<int64_t>(text.size()) - 1) / context;
  at::Tensor inputs = at::empty({count, context}, at::kLong), targets = at::empty({count, context}, at::kLong);
  const auto fill = [&](const at::Tensor& tensor, size_t first) {
    auto* out = tensor.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < count * context; ++i) out[i] = static_cast<unsigned char>(text[first + static_cast<size_t>(i)]);
  };
  fill(inputs, 0);
  fill(targets, 1);
  return std::make_shared<TensorDataset>(std::move(inputs), std::move(targets));
}

}  // namespace

DatasetPair open_tokens(const TokensOptions& options) {
  check_no_images(options);
  check_split(options.train, options.val, options.val_fraction);
  DatasetPair pair;
  pair.options = options;
  split_off_validation(pair, open_files(options.train, options), options.val_fraction);
  if (!options.val.empty()) pair.val = open_files(options.val, options);
  warn_without_validation(pair);
  pair.train = with_prefix(pair.train, options);
  pair.val = with_prefix(pair.val, options);
  return pair;
}

DatasetPair open_generated_text(const GeneratedTextOptions& options) {
  check_no_images(options);
  const auto seed = static_cast<uint64_t>(options.data_seed);
  const auto context = text_tokens(options, options.context);
  const auto samples = [&](int64_t count, uint64_t of_text) {
    return with_prefix(bytes_as_tokens(generate_text(count * context + 1, of_text), context), options);
  };
  DatasetPair pair;
  pair.options = options;
  pair.train = samples(options.train_size, seed);
  pair.val = samples(options.val_size, derive_seed(seed, "validation"));  // a different stream of the same seed
  return pair;
}

}  // namespace npu_train::detail
