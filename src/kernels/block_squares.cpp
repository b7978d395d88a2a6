#include "npu_train/kernels/block_squares.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <span>

#include "kernels/block_squares_kernels.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr int64_t kBlock = kSquaresBlock;

// Calls fn with a typed pointer to the elements.
template <class Fn>
void with_numbers_of(const at::Tensor& tensor, const Fn& fn) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return fn(tensor.const_data_ptr<float>());
    case at::kBFloat16:
      return fn(tensor.const_data_ptr<c10::BFloat16>());
    case at::kHalf:
      return fn(tensor.const_data_ptr<c10::Half>());
    case at::kDouble:
      return fn(tensor.const_data_ptr<double>());
    default:
      throw Error(ErrorKind::Usage, "sum_of_squares",
                  str_cat("a tensor of ", tensor.scalar_type(), "; allowed: float64, float32, float16 and bfloat16"));
  }
}

// Adds a block whose squares may exceed the range of fp64.
void add_scaled(const double* x, ExactSum& sum) {
  double largest = 0, not_finite = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    const double magnitude = std::abs(x[i]);
    if (!std::isfinite(magnitude)) not_finite += magnitude;
    largest = std::max(largest, magnitude);
  }
  if (not_finite != 0) return sum.add(not_finite);
  if (largest == 0) return;
  const int exponent = std::ilogb(largest);
  std::array<double, kBlock> scaled;
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] = std::ldexp(x[i], -exponent);
  double square = 0;
  detail::square_kernels()(scaled.data(), 1, &square);
  sum.add(square, 2 * exponent);
}

void add_sums(const double* x, std::span<const double> squares, ExactSum& sum) {
  for (const double square : squares) {
    const bool held = square >= 0x1p-900 && square <= std::numeric_limits<double>::max();
    held ? sum.add(square) : add_scaled(x, sum);
    x += kBlock;
  }
}
template <class T>
void add_sums(const T* /*x*/, std::span<const double> squares, ExactSum& sum) {
  sum.add(squares);
}

template <class T>
void add_blocks(const T* x, int64_t blocks, ExactSum& sum) {
  constexpr int64_t kAtOnce = 256;
  std::array<double, kAtOnce> sums;
  const auto& squares = detail::square_kernels();
  for (int64_t first = 0; first < blocks; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, blocks - first);
    squares(x + first * kBlock, count, sums.data());
    add_sums(x + first * kBlock, {sums.data(), static_cast<size_t>(count)}, sum);
  }
}

template <class T>
void add_part(const T* x, int64_t count, ExactSum& sum) {
  add_blocks(x, count / kBlock, sum);
  const int64_t rest = count % kBlock;
  if (rest == 0) return;
  std::array<T, kBlock> padded{};
  std::copy_n(x + count - rest, rest, padded.begin());
  add_blocks(padded.data(), 1, sum);
}

}  // namespace

ExactSum sum_of_squares(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> first_block = {0};  // for each tensor, the index of its first block among all blocks
  for (const auto& t : tensors) {
    check(t.is_cpu() && t.is_contiguous(), ErrorKind::Usage, "sum_of_squares", "a tensor of shape ", t.sizes(), " with strides ",
          t.strides(), " on ", t.device(), "; allowed: contiguous tensors on the CPU");
    with_numbers_of(t, [](const auto*) {});
    first_block.push_back(first_block.back() + (t.numel() + kBlock - 1) / kBlock);
  }
  ExactSum sum;
  std::mutex mutex;
  constexpr int64_t kGrain = 2048;  // number of blocks: half a MiB of fp32
  at::parallel_for(0, first_block.back(), kGrain, [&](int64_t begin, int64_t end) {
    ExactSum own;
    auto i = static_cast<size_t>(std::upper_bound(first_block.begin(), first_block.end(), begin) - first_block.begin() - 1);
    for (; i < tensors.size() && first_block[i] < end; ++i) {
      const int64_t from = std::max(begin - first_block[i], int64_t{0}) * kBlock;
      const int64_t to = std::min((end - first_block[i]) * kBlock, tensors[i].numel());
      if (from < to) with_numbers_of(tensors[i], [&](const auto* x) { add_part(x + from, to - from, own); });
    }
    const std::lock_guard<std::mutex> lock(mutex);
    sum.add(own);
  });
  return sum;
}

}  // namespace npu_train
