// Every element travels, in a code of fewer bytes, or as it is.
#include <ATen/ops/sub.h>

#include <utility>

#include "dist/coded_sum.hpp"
#include "dist/compressor.hpp"

namespace npu_train::detail {
namespace {

class CodedElements final : public Compressor {
 public:
  CodedElements(ValueCode code, Place place) : Compressor(std::move(place)), sum_(place_.group, code, place_.between_devices) {
    if (place_.sharding == Sharding::None) error_of_part_ = {place_.part_size(), place_.layout.options};
  }

  void send(const at::Tensor& flat, double unit) override {
    unit_ = unit;
    const auto own = error_.added_to(flat, unit);
    error_.propose(at::sub(own, sum_.send(own)));  // not in place: fp32 travels from where it is
  }
  bool arrived() override { return sum_.arrived(); }
  bool done() override { return sum_.done(); }
  void pass_on() override {
    part_ = sum_.add();
    if (place_.sharding != Sharding::None) return;
    const auto own = error_of_part_.added_to(part_, unit_);
    error_of_part_.propose(at::sub(own, sum_.gather(own)));
    part_.reset();
  }
  at::Tensor finish() override {
    auto out = place_.sharding == Sharding::None ? sum_.finish() : std::exchange(part_, {});
    times_ = sum_.times();
    return out;
  }

  void keep(const FlatPiece& piece) override {
    Compressor::keep(piece);
    const auto [begin, numel] = in_part(piece);
    error_of_part_.keep(begin, numel);
  }
  void settle(bool taken) override {
    Compressor::settle(taken);
    error_of_part_.settle(taken);
  }
  at::Tensor error_of_sum(const FlatPiece& piece) const override {
    if (!error_of_part_.value().defined()) return {};
    const auto [begin, numel] = in_part(piece);
    return error_of_part_.value().narrow(0, begin, numel);
  }
  void reset() override {
    Compressor::reset();
    if (error_of_part_.value().defined()) error_of_part_.value().zero_();
  }

 private:
  std::pair<int64_t, int64_t> in_part(const FlatPiece& piece) const {
    const auto rank = place_.group.rank(), ranks = place_.group.size();
    return {place_.layout.offset_in_part(piece, rank, ranks), place_.layout.range_of_rank(piece, rank, ranks).numel};
  }

  CodedSum sum_;
  CarriedError error_of_part_;  // of the sum of this rank's part, which is coded once more
  at::Tensor part_;             // with shards: the sum
  double unit_ = 1;
};

}  // namespace

std::unique_ptr<Compressor> make_coded_elements(ValueCode code, Compressor::Place place) {
  return std::make_unique<CodedElements>(code, std::move(place));
}

std::unique_ptr<Compressor> make_compressor(const Compression& compression, bool begins, Compressor::Place place) {
  const bool alone = place.group.size() == 1;
  if (alone || !compression.carries_errors() || place.layout.options.dtype() != at::kFloat) return nullptr;
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
