#include "tools/align/value_files.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/io/tensor_file.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kPiece = int64_t{1} << 15;  // number of elements in a piece; the pieces of both sides fit into the cache
// A sample consists of runs of consecutive elements. There are enough runs to meet most channels of a weight, and in a large tensor, each
// run is long enough to fill pages of the file. Small tensors are read completely, since opening the file takes longest.
constexpr int64_t kRuns = 256, kShortestRun = 32, kSmall = 4096;

// Checks that a file has the shape of its item. With another shape, the elements would be stored in a different order, for example
// transposed.
void check_shape(const TensorFile& file, const DumpItem& item) {
  const auto expected = item.sampled > 0 ? std::vector<int64_t>{item.sampled} : item.shape;
  const bool one_order = file.numel() <= 1 && numel_of(expected) == file.numel();
  check(file.sizes() == expected || one_order, ErrorKind::Data, "compare", file.path().string(), ": the file's shape is ",
        at::IntArrayRef(file.sizes()), ", that in dump.json is ", at::IntArrayRef(expected), item.sampled > 0 ? " (a sample)" : "");
}

// The elements of one side, divided by its loss scale.
class Side {
 public:
  explicit Side(const ValueFile& from) : file_(TensorFile::open(from.path)), scale_(from.loss_scale) {
    check_shape(file_, from.item);
    buffer_.resize(static_cast<size_t>(std::min<int64_t>(kPiece, file_.numel())) * std::max<size_t>(c10::elementSize(file_.dtype()), 4));
  }
  const TensorFile& file() const { return file_; }
  at::ScalarType dtype() const { return scale_ == 1 ? file_.dtype() : at::kFloat; }
  const void* read(int64_t first, int64_t n, bool storage_order) {
    if (storage_order)
      file_.read_storage_order(first, n, buffer_.data());
    else
      file_.read(first, n, buffer_.data());
    if (scale_ == 1) return buffer_.data();
    scaled_ = at::from_blob(buffer_.data(), {n}, at::TensorOptions().dtype(file_.dtype())).to(at::kFloat).div_(scale_);
    return scaled_.const_data_ptr();
  }

 private:
  TensorFile file_;
  double scale_;
  std::vector<char> buffer_;
  at::Tensor scaled_;
};

// Calls read(first, count) for a fraction `share` of n elements: one run at a random place in each of several equal parts. Returns whether
// the runs cover all elements.
template <class Read>
bool each_run(int64_t n, double share, uint64_t seed, const Read& read) {
  const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(n) * share));
  const auto length = std::clamp(wanted / kRuns, kShortestRun, kPiece);
  const auto parts = (wanted + length - 1) / length;
  if (share >= 1 || n <= kSmall || n / parts <= length) {
    for (int64_t at = 0; at < n; at += kPiece) read(at, std::min(kPiece, n - at));
    return true;
  }
  Philox random(derive_seed(seed, "compared elements", static_cast<uint64_t>(n)));
  for (int64_t part = 0; part < parts; ++part) {
    const auto begin = n / parts * part, room = n / parts - length;
    read(begin + static_cast<int64_t>(random.uniform() * static_cast<float>(room)), length);
  }
  return false;
}

}  // namespace

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const auto size : shape) {
    if (size < 0 || (size > 0 && n > (int64_t{1} << 60) / size)) return -1;
    n *= size;
  }
  return n;
}

ValuePair compare_value_files(const ValueFile& from_a, const ValueFile& from_b, double share, uint64_t seed) {
  Side a(from_a), b(from_b);
  const auto n = a.file().numel();
  check(n == b.file().numel(), ErrorKind::Data, "compare", from_a.item.name, ": the files contain ", n, " and ", b.file().numel(),
        " elements");
  const bool storage = a.file().same_order_as(b.file()) && !(a.file().streams() && b.file().streams());
  PairAccumulator pair(a.dtype(), b.dtype());
  const bool all = each_run(
      n, share, seed, [&](int64_t first, int64_t count) { pair.add(a.read(first, count, storage), b.read(first, count, storage), count); });
  ValuePair out{.metrics = pair.result(), .whole = all};
  out.bytes = out.metrics.elements * static_cast<int64_t>(c10::elementSize(a.file().dtype()) + c10::elementSize(b.file().dtype()));
  return out;
}

}  // namespace npu_train::detail
