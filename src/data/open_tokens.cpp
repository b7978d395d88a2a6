#include "data/open_tokens.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>

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

void check_written_together(const std::vector<std::string>& train, const std::vector<std::string>& val) {
  namespace fs = std::filesystem;
  for (const fs::path held : val) {
    const auto partner = held.parent_path() / "train.bin";
    const auto is_partner = [&](const std::string& path) {
      std::error_code unreadable;
      return fs::equivalent(path, partner, unreadable);
    };
    if (held.filename() != "val.bin" || std::none_of(train.begin(), train.end(), is_partner)) continue;
    check(
        TokenFile(held).written_with() == TokenFile(partner).written_with(), ErrorKind::Data, "tokens", held.string(),
        ": was not written together with ", partner.string(),
        ", so that some text may be in both or in none; hint: run npu_tool tokenize again with the same --to, or rename one of the two if "
        "you made them separately");
  }
}

namespace {

std::shared_ptr<TokenDataset> open_files(const std::vector<std::string>& paths, const TokensOptions& options) {
  std::vector<TokenFile> files;
  for (const auto& path : paths) files.emplace_back(path, options.dtype);
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
  const auto paths = token_files(options.train);
  split_off_validation(pair, open_files(paths, options), options.val_fraction);
  if (!options.val.empty()) {
    const auto val_paths = token_files(options.val);
    pair.val = open_files(val_paths, options);
    check_written_together(paths, val_paths);
  }
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
