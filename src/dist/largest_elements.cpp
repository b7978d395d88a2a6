// Sends the largest elements of each bucket with their indices; the lists of all ranks are gathered (Aji & Heafield 2017, arXiv:1704.05021;
// Lin et al. 2018, arXiv:1712.01887).
#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "dist/coded_sum.hpp"
#include "dist/compressor.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kPlaceBytes = Compression::kPlaceBytes;

class LargestElements final : public Compressor {
 public:
  LargestElements(const Compression& compression, Place place) : Compressor(std::move(place)), code_(compression.values) {
    check(place_.layout.numel <= std::numeric_limits<int32_t>::max(), ErrorKind::Usage, "dist.compression",
          "topk and ratio number the elements of a bucket by 32 bits; it has ", place_.layout.numel,
          "; hint: a smaller dist.bucket_mib, unless one parameter is that large");
    int64_t elements = 0;
    for (const auto& piece : place_.layout.pieces) elements += piece.numel;
    chosen_ = compression.elements_sent(elements, place_.group.size(), place_.sharding != Sharding::None);
  }

  void send(const at::Tensor& flat, double unit) override {
    auto own = error_.added_to(flat, unit);
    const auto sizes = own.abs().nan_to_num_(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
    const auto places = std::get<1>(at::topk(sizes, chosen_));
    const auto values = own.index_select(0, places);
    const auto coded = code_.encode(values.view({1, -1}));
    message_ = at::cat({places.to(at::kInt).view({1, -1}).view(at::kByte), coded}, 1);
    if (place_.between_devices) gather();  // between devices, exchanges and gathers are one sequence
    own.index_copy_(0, places, values - code_.decode(coded, chosen_).view({-1}));
    error_.propose(std::move(own));
  }
  bool arrived() override { return true; }
  bool done() override { return lists_ == nullptr || lists_->done(); }
  void pass_on() override {
    if (lists_ == nullptr) gather();  // here, so that all ranks gather buckets in the same order
  }

  at::Tensor finish() override {
    const auto lists = lists_->wait();
    times_ = {.bytes = lists_->bytes(), .gather = lists_->span()};
    lists_.reset();
    const auto bytes = lists.narrow(1, 0, chosen_ * kPlaceBytes).contiguous();
    const auto places = bytes.view({-1}).view(at::kInt).view({-1, chosen_}).to(at::kLong);
    const auto values = code_.decode(lists.narrow(1, chosen_ * kPlaceBytes, code_.bytes(chosen_)), chosen_);
    auto sums = at::zeros({place_.layout.numel}, place_.layout.options);
    for (int r = 0; r < place_.group.size(); ++r) sums.index_add_(0, places[r], values[r]);  // no index occurs twice in a list
    return place_.sharding == Sharding::None ? sums : of_part(sums);
  }

 private:
  void gather() { lists_ = std::make_unique<Message>(Message::gather(place_.group, std::exchange(message_, {}), place_.between_devices)); }

  ValueCode code_;
  int64_t chosen_ = 0;
  at::Tensor message_;
  std::unique_ptr<Message> lists_;
};

}  // namespace

std::unique_ptr<Compressor> make_largest_elements(const Compression& compression, Compressor::Place place) {
  return std::make_unique<LargestElements>(compression, std::move(place));
}

}  // namespace npu_train::detail
