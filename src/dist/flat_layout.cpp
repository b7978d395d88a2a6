#include "dist/flat_layout.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kBlock = 64;

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Places each piece in the part of its owner.
void place_with_owners(FlatBucket& bucket, int ranks, const std::vector<int>& owners) {
  std::vector<int64_t> ends(static_cast<size_t>(ranks));
  for (auto& piece : bucket.pieces) {
    auto& end = ends[static_cast<size_t>(owners[piece.parameter])];
    piece.offset = end;
    end = padded(end + piece.numel, kBlock);
  }
  const auto part = *std::max_element(ends.begin(), ends.end());
  for (auto& piece : bucket.pieces) piece.offset += owners[piece.parameter] * part;
  bucket.numel = part * ranks;
}

}  // namespace

int64_t FlatBucket::bytes_to_others(int ranks, size_t element_size) const {
  return numel / ranks * (ranks - 1) * static_cast<int64_t>(element_size);
}

at::Tensor FlatBucket::view(const at::Tensor& flat, const FlatPiece& piece, const at::Tensor& parameter) {
  const at::AutoDispatchBelowADInplaceOrView no_view;  // hidden from autograd, because zero_grad() of torch::optim detaches in place
  return flat.as_strided(parameter.sizes(), parameter.strides(), piece.offset);
}

FlatBucket::Range FlatBucket::range_of_rank(const FlatPiece& piece, int rank, int ranks) const {
  const auto size = numel / ranks, first = rank * size;
  const auto begin = std::clamp<int64_t>(first - piece.offset, 0, piece.numel);
  const auto end = std::clamp<int64_t>(first + size - piece.offset, 0, piece.numel);
  return {end > begin ? begin : 0, end - begin};
}

int64_t FlatBucket::offset_in_part(const FlatPiece& piece, int rank, int ranks) const {
  return std::clamp<int64_t>(piece.offset - rank * (numel / ranks), 0, numel / ranks);
}

namespace {

// Adds buckets for the parameters `indices`, in their order. The first bucket of the layout is closed at an eighth of `bucket_bytes`.
void add_buckets(const ParameterSet& parameters, const std::vector<size_t>& indices, int ranks, int64_t bucket_bytes,
                 const std::vector<int>& owners, std::vector<FlatBucket>& closed) {
  std::vector<FlatBucket> open;  // at most one for each combination of device and dtypes
  const auto close = [&](FlatBucket bucket) {
    if (owners.empty())
      bucket.numel = padded(bucket.numel, kBlock * ranks);
    else
      place_with_owners(bucket, ranks, owners);
    closed.push_back(std::move(bucket));
  };
  for (const size_t i : indices) {
    const auto& value = parameters[i].value;
    check(value.is_non_overlapping_and_dense(), ErrorKind::Usage, "flat_layout", parameters[i].name,
          " is not dense in memory; call .contiguous() on it before training");
    const auto options = value.options().requires_grad(false);
    auto bucket = std::find_if(open.begin(), open.end(), [&](const FlatBucket& b) {
      return b.options.device() == options.device() && b.options.dtype() == options.dtype() &&
             in_model(parameters[b.pieces.front().parameter]).scalar_type() == in_model(parameters[i]).scalar_type();
    });
    if (bucket == open.end()) bucket = open.insert(open.end(), {.options = options});
    bucket->pieces.push_back({i, bucket->numel, value.numel()});
    bucket->numel = padded(bucket->numel + value.numel(), kBlock);
    const auto limit = closed.empty() ? bucket_bytes / 8 : bucket_bytes;
    if (bucket->numel * static_cast<int64_t>(value.element_size()) >= limit) {
      close(std::move(*bucket));
      open.erase(bucket);
    }
  }
  for (auto& bucket : open) close(std::move(bucket));
}

}  // namespace

std::vector<FlatBucket> flat_layout(const ParameterSet& parameters, int ranks, int64_t bucket_bytes, const std::vector<int>& owners) {
  check(ranks >= 1 && bucket_bytes >= 1, ErrorKind::Usage, "flat_layout", ranks, " ranks and buckets of ", bucket_bytes,
        " bytes; both must be positive");
  std::vector<size_t> backwards(parameters.size());
  for (size_t i = 0; i < backwards.size(); ++i) backwards[i] = backwards.size() - 1 - i;
  std::vector<FlatBucket> out;
  add_buckets(parameters, backwards, ranks, bucket_bytes, owners, out);
  return out;
}

std::vector<FlatBucket> unit_layout(const ParameterSet& parameters, int ranks, const std::vector<size_t>& unit_of) {
  const auto units = unit_of.empty() ? 0 : *std::max_element(unit_of.begin(), unit_of.end()) + 1;
  std::vector<FlatBucket> out;
  for (size_t unit = units; unit-- > 0;) {
    std::map<std::pair<size_t, at::ScalarType>, std::vector<size_t>> backwards;  // smallest element sizes first
    for (size_t i = parameters.size(); i-- > 0;) {
      const auto& value = in_model(parameters[i]);
      if (unit_of[i] == unit) backwards[{value.element_size(), value.scalar_type()}].push_back(i);
    }
    for (const auto& of_dtype : backwards)
      add_buckets(parameters, of_dtype.second, ranks, std::numeric_limits<int64_t>::max(), /*owners=*/{}, out);
  }
  return out;
}

}  // namespace npu_train::detail
