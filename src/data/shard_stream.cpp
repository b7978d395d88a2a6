#include "data/shard_stream.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/data/sampler.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kShardStream = "webdataset";

// Returns the number of archives and a digest of their names and sizes. Folders are left out, because they may differ between machines.
std::string source_of(const std::vector<std::filesystem::path>& shards) {
  Hasher out;
  for (const auto& shard : shards) {
    std::error_code error;
    const auto name = shard.filename().string();
    const uint64_t sizes[] = {name.size(), std::filesystem::file_size(shard, error)};
    check(!error, ErrorKind::Data, kShardStream, shard.string(), ": ", error.message());
    out.update(sizes, sizeof sizes);
    out.update(name.data(), name.size());
  }
  return str_cat(shards.size(), " archives with the digest ", hex64(out.digest()));
}

at::Tensor long_tensor(const std::vector<int64_t>& values) {
  auto out = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

// Returns the list that is saved under `key`. An empty list is not saved.
std::vector<int64_t> longs_in(const State& state, const std::string& key) {
  if (state.tensors.count(key) == 0) return {};
  const auto& tensor = state.tensor(key, kShardStream);
  check(tensor.dim() == 1 && tensor.scalar_type() == at::kLong, ErrorKind::Checkpoint, kShardStream, "'", key, "' of the state is ",
        tensor.scalar_type(), " ", tensor.sizes(), "; allowed: a list of whole numbers");
  const auto values = tensor.cpu().contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

}  // namespace

ShardStream::ShardStream(std::vector<std::filesystem::path> shards, SampleParts parts, DatasetInfo info, ShardOrder order)
    : shards_(std::move(shards)),
      format_(std::make_shared<const Format>(Format{std::move(parts), std::move(info)})),
      order_(order),
      source_(source_of(shards_)) {
  if (!order_.shuffle) order_.buffer = 1;
}

void ShardStream::shard(int64_t index, int64_t count) {
  const auto all = static_cast<int64_t>(shards_.size());
  check(all >= count, ErrorKind::Usage, "data.train", all, " archives for ", count,
        " ranks; allowed: at least one for each rank; hint: write the ", "same samples into more archives");
  index_ = index;
  count_ = count;
  if (index == 0 && all % count != 0)
    log_warning("data.train: ", all, " archives for ", count, " ranks: ", all % count, " of the ranks read ", all / count + 1,
                " in each epoch, the others ", all / count, " and are idle at its end; hint: a multiple of ", count,
                " archives of equal size");
}

void ShardStream::begin_epoch(int64_t epoch) {
  const auto all = static_cast<int64_t>(shards_.size());
  const auto order = order_.shuffle ? permutation(derive_seed(seed_, "shards"), epoch, all) : sequence(all);
  epoch_ = epoch;
  own_.clear();
  for (auto i = index_; i < all; i += count_) own_.push_back(order[static_cast<size_t>(i)]);
  at_ = 0;
  file_.reset();
  position_ = 0;
  buffer_.clear();
  given_ = 0;
}

void ShardStream::leave_archive() {
  ++at_;
  position_ = 0;
  file_.reset();
}

// Returns the next sample in the order of the archives.
std::optional<ShardStream::Entry> ShardStream::read_next() {
  for (; at_ < static_cast<int64_t>(own_.size()); leave_archive()) {
    const auto shard = own_[static_cast<size_t>(at_)];
    try {
      if (!file_) file_.emplace(shards_[static_cast<size_t>(shard)]);
      if (auto sample = next_sample(*file_, position_)) return Entry{shard, std::move(*sample)};
    } catch (...) {
      leave_archive();
      throw;
    }
  }
  return std::nullopt;
}

std::optional<PendingImage> ShardStream::next_image() {
  while (static_cast<int64_t>(buffer_.size()) < order_.buffer) {
    auto entry = read_next();
    if (!entry) break;
    buffer_.push_back(std::move(*entry));
  }
  if (buffer_.empty()) return std::nullopt;
  // The generator of each draw is derived from the number of the draw, so that the state has only this number.
  const auto of_part = derive_seed(seed_, "shuffle buffer", static_cast<uint64_t>(epoch_), static_cast<uint64_t>(index_));
  const auto drawn = Philox(of_part, static_cast<uint64_t>(given_)).below(static_cast<uint32_t>(buffer_.size()));
  std::swap(buffer_[drawn], buffer_.back());
  auto entry = std::move(buffer_.back());
  buffer_.pop_back();
  ++given_;
  const auto& path = shards_[static_cast<size_t>(entry.shard)];
  PendingImage out{where_sample(path, entry.sample), {}};
  out.read = [path, sample = std::move(entry.sample), format = format_] { return read_sample(path, sample, format->parts, format->info); };
  return out;
}

State ShardStream::state() const {
  std::vector<int64_t> shards, offsets;
  for (const auto& entry : buffer_) {
    shards.push_back(entry.shard);
    offsets.push_back(static_cast<int64_t>(entry.sample.begin));
  }
  State out;
  out.values["source"] = source_;
  out.values["buffer"] = order_.shuffle ? order_.buffer : 0;
  out.values["shard"] = at_;
  out.values["offset"] = static_cast<int64_t>(position_);
  out.values["given"] = given_;
  if (buffer_.empty()) return out;
  out.tensors["buffer_shards"] = long_tensor(shards);
  out.tensors["buffer_offsets"] = long_tensor(offsets);
  return out;
}

void ShardStream::load_state(const State& state) {
  check(state.values.count("source") > 0, ErrorKind::Checkpoint, kShardStream,
        "the state is inside an epoch of other data; hint: resume with the same data.name, or from the end of an epoch");
  const auto& source = state.text("source", kShardStream);
  check(source == source_, ErrorKind::Checkpoint, kShardStream, "the state belongs to ", source, ", and data.train names ", source_,
        "; hint: inside an epoch, the files and their order must be unchanged");
  const auto buffer = state.integer("buffer", kShardStream), own_buffer = order_.shuffle ? order_.buffer : 0;
  check(buffer == own_buffer, ErrorKind::Checkpoint, kShardStream, "the state has a shuffle buffer of ", buffer,
        " samples, and this run one of ", own_buffer, "; hint: inside an epoch, data.shuffle and data.shuffle_buffer must be unchanged");
  const auto at = state.integer("shard", kShardStream), offset = state.integer("offset", kShardStream),
             given = state.integer("given", kShardStream);
  const auto shards = longs_in(state, "buffer_shards"), offsets = longs_in(state, "buffer_offsets");
  const auto all = static_cast<int64_t>(shards_.size());
  const bool sound = at >= 0 && at <= static_cast<int64_t>(own_.size()) && offset >= 0 && given >= 0 && shards.size() == offsets.size() &&
                     static_cast<int64_t>(shards.size()) <= buffer &&
                     std::all_of(shards.begin(), shards.end(), [&](int64_t shard) { return shard >= 0 && shard < all; }) &&
                     std::all_of(offsets.begin(), offsets.end(), [](int64_t begin) { return begin >= 0; });
  check(sound, ErrorKind::Checkpoint, kShardStream, "the state is damaged: archive ", at, " of ", own_.size(), ", offset ", offset,
        ", sample ", given, ", ", shards.size(), " and ", offsets.size(), " samples in the buffer");
  std::vector<Entry> entries;
  std::optional<ReadableFile> open;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto& path = shards_[static_cast<size_t>(shards[i])];
    if (i == 0 || shards[i] != shards[i - 1]) open.emplace(path, ErrorKind::Checkpoint);
    auto position = static_cast<uint64_t>(offsets[i]);
    auto sample = next_sample(*open, position);
    check(sample && static_cast<int64_t>(sample->begin) == offsets[i], ErrorKind::Checkpoint, kShardStream, path.string(),
          ": no sample at offset ", offsets[i], "; hint: inside an epoch, the files must be unchanged");
    entries.push_back({shards[i], std::move(*sample)});
  }
  at_ = at;
  file_.reset();
  position_ = static_cast<uint64_t>(offset);
  given_ = given;
  buffer_ = std::move(entries);
}

}  // namespace npu_train::detail
