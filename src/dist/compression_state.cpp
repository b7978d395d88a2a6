#include "dist/compression_state.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <string>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kPart = "compression";
constexpr const char *kScale = "scale", *kSteps = "steps";

at::Tensor meta(at::IntArrayRef sizes) { return at::empty(sizes, at::TensorOptions().device(at::kMeta).dtype(at::kFloat)); }

const at::Tensor* find(const State& state, const std::string& name) {
  const auto found = state.tensors.find(name);
  return found == state.tensors.end() ? nullptr : &found->second;
}

void refuse(bool bad, const std::string& name, const at::Tensor& given, int64_t numel) {
  check(!bad, ErrorKind::Checkpoint, kPart, name, " has shape ", given.sizes(), "; the parameter has ", numel,
        " elements; hint: the checkpoint is of another model");
}

// Loads the errors of gradients into `to`. `saved` is this rank's own row, or has a row for each rank that saved; in the second case, this
// rank adds the rows that it takes over.
void add_rows(const at::Tensor& to, const at::Tensor& saved, const std::string& name, const ProcessGroup& group) {
  const bool own_row = saved.dim() == 1 && saved.numel() == to.numel();
  refuse(!own_row && (saved.dim() != 2 || saved.size(1) != to.numel()), name, saved, to.numel());
  if (own_row) {
    to.copy_(saved);
    return;
  }
  for (int64_t row = group.rank(); row < saved.size(0); row += group.size()) to.add_(saved[row].to(to.device()));
}

// Loads the errors of sums into `to`, this rank's part. If the method has no such errors, `to` is undefined, and the main rank adds the
// errors to `all`, the errors of its gradients.
void add_sums(const at::Tensor& to, const at::Tensor& all, const at::Tensor& saved, int64_t begin, const std::string& name,
              const ProcessGroup& group) {
  const bool complete = saved.dim() == 1 && saved.numel() == all.numel();
  refuse(!complete && (!to.defined() || saved.dim() != 1 || saved.numel() != to.numel()), name, saved, all.numel());
  if (to.defined())
    to.copy_(complete ? saved.narrow(0, begin, to.numel()) : saved);
  else if (group.rank() == 0)
    all.add_(saved.to(all.device()));
}

// Returns the first element of a piece in the part whose sum this rank compresses.
int64_t begin_of(const Bucket& bucket, const FlatPiece& piece) {
  const auto& group = bucket.compressor()->group();
  return bucket.layout().range_of_rank(piece, group.rank(), group.size()).begin;
}

// Adds empty slices for the errors that other ranks carry, so that this rank reads none of them.
void add_empty(ParameterSet& slices, const Bucket& bucket, const ParameterSet& parameters) {
  const auto ranks = bucket.compressors_elsewhere();
  if (ranks == 0) return;
  for (const auto& piece : bucket.layout().pieces) {
    const auto& name = parameters[piece.parameter].name;
    const auto none = at::empty({0}, at::kFloat);
    slices.add({.name = "rank/" + name, .value = none, .sliced_from = meta({ranks, piece.numel})});
    slices.add({.name = "sum/" + name, .value = none, .sliced_from = meta({piece.numel})});
  }
}

}  // namespace

at::ScalarType travel_dtype(const DistOptions& options) {
  const auto compression = options.compressed();
  if (compression.has_error_feedback()) return at::kFloat;
  if (compression.values == "fp16") return at::kHalf;
  return compression.values == "bf16" || options.reduce_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
}

void BucketErrors::settle(bool taken) {
  if (std::exchange(settled_, true)) return;
  for (auto& b : buckets_)
    if (b.compressor() != nullptr) b.compressor()->settle(taken);
  if (!taken) return;
  errors_scale_ = scale_;
  ++steps_;
  compress_from_start();
}

void BucketErrors::compress_from_start() {
  for (auto& b : buckets_) b.compress(steps_ >= start_);
}

CompressionState BucketErrors::state() const {
  CompressionState out;
  out.shared.values[kScale] = errors_scale_;
  out.shared.values[kSteps] = steps_;
  for (const auto& bucket : buckets_) {
    add_empty(out.slices, bucket, parameters_);
    if (bucket.compressor() == nullptr) continue;
    const auto& pieces = bucket.layout().pieces;
    const auto& group = bucket.compressor()->group();
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& name = parameters_[pieces[i].parameter].name;
      const auto numel = pieces[i].numel;
      out.slices.add({.name = "rank/" + name,
                      .value = bucket.compressor()->error(pieces[i]),
                      .sliced_from = meta({group.size(), numel}),
                      .begin = group.rank() * numel});
      if (const auto sum = bucket.compressor()->error_of_sum(pieces[i]); sum.defined())
        out.slices.add({.name = "sum/" + name, .value = sum, .sliced_from = meta({numel}), .begin = begin_of(bucket, pieces[i])});
      if (const auto shared = bucket.compressor()->shared(pieces[i]); shared.defined()) out.shared.tensors["factor/" + name] = shared;
    }
  }
  return out;
}

State own_state(const CompressionState& state) {
  auto out = state.shared;
  for (const auto& p : state.slices) out.tensors["error/" + p.name] = p.value;
  return out;
}

void BucketErrors::load(const State& saved) {
  const at::NoGradGuard no_grad;
  settle(false);
  errors_scale_ = saved.empty() ? 1 : saved.number(kScale, kPart);
  steps_ = saved.values.contains(kSteps) ? saved.integer(kSteps, kPart) : 0;
  compress_from_start();
  for (const auto& bucket : buckets_) {
    if (bucket.compressor() == nullptr) continue;
    bucket.compressor()->reset();
    const auto& group = bucket.compressor()->group();
    const auto& pieces = bucket.layout().pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& name = parameters_[pieces[i].parameter].name;
      const auto rows = "error/rank/" + name, sums = "error/sum/" + name, factor = "factor/" + name;
      const auto all = bucket.compressor()->error(pieces[i]), of_sum = bucket.compressor()->error_of_sum(pieces[i]);
      if (const auto* found = find(saved, rows)) add_rows(all, *found, rows, group);
      if (const auto* found = find(saved, sums)) add_sums(of_sum, all, *found, begin_of(bucket, pieces[i]), sums, group);
      const auto shared = bucket.compressor()->shared(pieces[i]);
      if (const auto* found = find(saved, factor); found != nullptr && shared.defined() && found->sizes() == shared.sizes())
        shared.copy_(*found);
    }
  }
}

}  // namespace npu_train::detail
