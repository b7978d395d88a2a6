// Sends every element, unchanged or in an encoding with fewer bytes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include <utility>

#include "dist/coded_sum.hpp"
#include "dist/compressor.hpp"

namespace npu_train::detail {
namespace {

// Mean absolute value of each element in recent sums, equal on all ranks. Elements are divided by it before they are encoded in few bits,
// so that a small element loses no more of its value than a large one nearby. Uses only operations that give the same bits on every
// processor, and therefore no roots.
class RecentSizes {
 public:
  RecentSizes() = default;
  RecentSizes(int64_t numel, const at::TensorOptions& options) : carried_(numel, options) {}
  bool defined() const { return value().defined(); }

  // Returns the divisor of each element: its mean absolute value, but at least the share kLeast of the largest one in its block. kSmallest
  // prevents an overflow of the division.
  at::Tensor units() const {
    constexpr double kLeast = 0.05, kSmallest = 1e-18;
    const auto sizes = in_blocks(value().view({1, -1}));
    const auto largest = sizes.amax(-1, /*keepdim=*/true);
    const auto units = at::where(largest == 0, 1.0, at::maximum(sizes, largest.mul(kLeast)).clamp_min_(kSmallest));
    return units.view({-1}).narrow(0, 0, value().numel());
  }

  // Adds the sums of this window if its step is taken. `unit` rescales earlier sums to the scale of these sums.
  void propose(const at::Tensor& sums, double unit) {
    constexpr double kKept = 0.95;
    carried_.begin(unit);
    carried_.propose(value().mul(kKept * unit).add_(sums.abs().mul_(1 - kKept)));
  }
  void keep(int64_t begin, int64_t numel) { carried_.keep(begin, numel); }
  void settle(bool taken) { carried_.settle(taken); }
  const at::Tensor& value() const { return carried_.value(); }

 private:
  ErrorFeedback carried_;  // carries the mean absolute values from window to window, by the mechanism for errors
};

class CodedElements final : public Compressor {
 public:
  CodedElements(ValueCode code, Place place) : Compressor(std::move(place)), sum_(place_.group, code, place_.between_devices) {
    if (place_.sharding != Sharding::None) return;
    error_of_part_ = {place_.part_size(), place_.layout.options};
    if (code.has_few_bits()) sizes_ = {place_.layout.numel, place_.layout.options};
  }

  void send(const at::Tensor& flat, double unit) override {
    unit_ = unit;
    if (sizes_.defined()) units_ = sizes_.units();
    const auto own = error_.added_to(flat, unit);
    error_.propose(at::sub(own, as_read(sum_.send(in_units(own, units_)), units_)));  // not in place: fp32 is sent from this memory
  }
  bool arrived() override { return sum_.arrived(); }
  bool done() override { return sum_.done(); }
  void pass_on() override {
    part_ = sum_.add();
    if (place_.sharding != Sharding::None) return;
    const auto units = units_.defined() ? of_part(units_) : at::Tensor();
    const auto own = error_of_part_.added_to(as_read(part_, units), unit_);
    error_of_part_.propose(at::sub(own, as_read(sum_.gather(in_units(own, units)), units)));
    part_.reset();
  }
  at::Tensor finish() override {
    auto out = place_.sharding == Sharding::None ? as_read(sum_.finish(), units_) : std::exchange(part_, {});
    units_.reset();
    if (sizes_.defined()) sizes_.propose(out, unit_);
    times_ = sum_.times();
    return out;
  }

  void keep(const FlatPiece& piece) override {
    Compressor::keep(piece);
    const auto [begin, numel] = in_part(piece);
    error_of_part_.keep(begin, numel);
    sizes_.keep(piece.offset, piece.numel);
  }
  void settle(bool taken) override {
    Compressor::settle(taken);
    error_of_part_.settle(taken);
    sizes_.settle(taken);
  }
  at::Tensor error_of_sum(const FlatPiece& piece) const override {
    if (!error_of_part_.value().defined()) return {};
    const auto [begin, numel] = in_part(piece);
    return error_of_part_.value().narrow(0, begin, numel);
  }
  at::Tensor shared(const FlatPiece& piece) const override {
    return sizes_.defined() ? sizes_.value().narrow(0, piece.offset, piece.numel) : at::Tensor();
  }
  void reset() override {
    Compressor::reset();
    if (error_of_part_.value().defined()) error_of_part_.value().zero_();
    if (sizes_.defined()) sizes_.value().zero_();
  }

 private:
  static at::Tensor in_units(const at::Tensor& values, const at::Tensor& units) { return units.defined() ? values.div(units) : values; }
  static at::Tensor as_read(const at::Tensor& values, const at::Tensor& units) { return units.defined() ? values.mul(units) : values; }
  std::pair<int64_t, int64_t> in_part(const FlatPiece& piece) const {
    const auto rank = place_.group.rank(), ranks = place_.group.size();
    return {place_.layout.offset_in_part(piece, rank, ranks), place_.layout.range_of_rank(piece, rank, ranks).numel};
  }

  CodedSum sum_;
  ErrorFeedback error_of_part_;  // error of the sum of this rank's part, which is encoded a second time
  RecentSizes sizes_;            // used only with few bits
  at::Tensor units_;             // divisors of this window
  at::Tensor part_;              // the sum of this rank's part; finish() returns it if gradients are sharded
  double unit_ = 1;
};

}  // namespace

std::unique_ptr<Compressor> make_coded_elements(ValueCode code, Compressor::Place place) {
  return std::make_unique<CodedElements>(code, std::move(place));
}

std::unique_ptr<Compressor> make_compressor(const Compression& compression, bool begins, Compressor::Place place) {
  const bool alone = place.group.size() == 1;
  if (alone || !compression.has_error_feedback() || place.layout.options.dtype() != at::kFloat) return nullptr;
  if (!begins) return make_coded_elements(ValueCode("fp32"), std::move(place));
  switch (compression.method) {
    case Compression::Method::Largest:
      if (const int bits = compression.bits_within_ratio(place.part_size()); bits > 0)
        return make_coded_elements(ValueCode(bits), std::move(place));
      return make_largest_elements(compression, std::move(place));
    case Compression::Method::LowRank:
      return make_low_rank(compression, std::move(place));
    default:
      return make_coded_elements(ValueCode(compression.values), std::move(place));
  }
}

}  // namespace npu_train::detail
