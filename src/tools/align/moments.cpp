#include "tools/align/moments.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/statistics.hpp"
#include "tools/align/block_kernels.hpp"
#include "tools/align/chunks.hpp"

namespace npu_train::detail {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Updates the extremes and the number of zeros, by one value at a time.
template <class T>
void look_at(const T* x, int64_t n, Moments& into) {
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] > into.max) into.max = x[i];
    if (x[i] < into.min) into.min = x[i];
    into.zeros += x[i] == 0;
  }
}

template <class T>
void count_special(const T* x, int64_t n, Moments& into) {
  for (int64_t i = 0; i < n; ++i) {
    into.nans += std::isnan(x[i]);
    into.infs += std::isinf(x[i]);
  }
}

// Adds at most kBlock values.
template <class T>
void add_piece(const T* x, int64_t n, Moments& into) {
  const auto& kernels = block_kernels<T>();
  std::array<double, kBlock / kSumBlock> sums, squares;
  auto blocks = static_cast<size_t>(n / kSumBlock);
  const auto extremes = kernels.moments(x, static_cast<int64_t>(blocks), sums.data(), squares.data());
  into.max = std::max(into.max, extremes.max);
  into.min = std::min(into.min, extremes.min);
  into.zeros += extremes.zeros;
  if (const int64_t rest = n % kSumBlock; rest > 0) {
    std::array<T, kSumBlock> padded{};
    std::copy_n(x + n - rest, rest, padded.begin());
    kernels.moments(padded.data(), 1, &sums[blocks], &squares[blocks]);
    look_at(x + n - rest, rest, into);
    ++blocks;
  }
  if (std::any_of(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(blocks), [](double s) { return !std::isfinite(s); }))
    count_special(x, n, into);
  into.sum.add(std::span(sums.data(), blocks));
  into.squares.add(std::span(squares.data(), blocks));
}

template <class T>
Moments moments_of_memory(at::ScalarType dtype, const char* data, int64_t n) {
  const auto& kernels = block_kernels<T>();
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  const auto parts = parts_of_chunks(n, [&](int64_t start, int64_t count) {
    alignas(64) T buffer[kBlock];
    Moments out;
    for (int64_t i = start; i < start + count; i += kBlock) {
      const int64_t length = std::min(kBlock, start + count - i);
      add_piece(kernels.widened(dtype, data + i * size, length, buffer), length, out);
    }
    return out;
  });
  Moments out;
  for (const auto& part : parts) out.join(part);
  out.count = n;
  return out;
}

at::Tensor real_values(const at::Tensor& t) {
  const auto x = t.detach().resolve_conj().resolve_neg();
  return x.is_complex() ? at::abs(x) : x;
}

// Returns the sign of a sum, followed by the place and the value of each digit of its absolute value that is not 0.
std::string text_of(const ExactSum& sum) {
  auto limbs = sum.limbs();
  const bool negative = limbs[ExactSum::kDigits - 1] < 0;
  if (negative) {
    for (int i = 0; i < ExactSum::kDigits; ++i) limbs[static_cast<size_t>(i)] *= -1;
    limbs = ExactSum(limbs).limbs();
  }
  std::string out = negative ? "-" : "+";
  for (size_t i = 0; i < limbs.size(); ++i)
    if (limbs[i] != 0) out += std::to_string(i) + ":" + std::to_string(limbs[i]) + ";";
  return out;
}

// Removes the text up to `end` from the front, and returns it.
std::string_view taken(std::string_view& text, char end) {
  const auto at = text.find(end);
  check(at != std::string_view::npos, ErrorKind::Peer, "monitor", "a rank sent statistics that cannot be read");
  const auto out = text.substr(0, at);
  text.remove_prefix(at + 1);
  return out;
}

int64_t integer_in(std::string_view text) {
  const auto value = whole_number(text);
  check(value.has_value(), ErrorKind::Peer, "monitor", "a rank sent statistics that cannot be read: '", text, "'");
  return *value;
}

double real_in(std::string_view text) {
  const auto value = decimal_number(text);
  check(value.has_value(), ErrorKind::Peer, "monitor", "a rank sent statistics that cannot be read: '", text, "'");
  return *value;
}

ExactSum sum_in(std::string_view text) {
  ExactSum::Limbs limbs{};
  const bool negative = text.starts_with('-');
  text.remove_prefix(std::min<size_t>(text.size(), 1));
  while (!text.empty()) {
    const auto place = integer_in(taken(text, ':'));
    check(place >= 0 && place < ExactSum::kLimbs, ErrorKind::Peer, "monitor", "a rank sent the digit ", place, " of a sum");
    const auto digit = integer_in(taken(text, ';'));
    limbs[static_cast<size_t>(place)] = negative && place < ExactSum::kDigits ? -digit : digit;
  }
  return ExactSum(limbs);
}

}  // namespace

void Moments::join(const Moments& other) {
  sum.add(other.sum);
  squares.add(other.squares);
  max = std::max(max, other.max);
  min = std::min(min, other.min);
  count += other.count;
  zeros += other.zeros;
  nans += other.nans;
  infs += other.infs;
}

double Moments::norm() const { return count > 0 ? squares.root() : kNotANumber; }
double Moments::mean() const { return count > 0 ? sum.value() / static_cast<double>(count) : kNotANumber; }
double Moments::highest() const { return count > 0 && nans == 0 ? max : kNotANumber; }
double Moments::lowest() const { return count > 0 && nans == 0 ? min : kNotANumber; }
double Moments::zero_share() const { return count > 0 ? static_cast<double>(zeros) / static_cast<double>(count) : kNotANumber; }

double Moments::deviation() const {
  const double average = mean(), square = squares.value() / static_cast<double>(count), variance = square - average * average;
  if (!std::isfinite(variance)) return kNotANumber;
  constexpr double kRounding = 4 * std::numeric_limits<double>::epsilon();
  return variance > kRounding * square ? std::sqrt(variance) : 0;
}

Moments moments_of(const at::Tensor& t) {
  const c10::NoGradGuard no_grad;
  auto x = real_values(t);
  if (!widens_to_double(x.scalar_type())) x = x.to(at::kFloat);  // converts 8-bit floats
  if (!x.is_non_overlapping_and_dense()) x = x.contiguous();
  const auto* data = static_cast<const char*>(x.const_data_ptr());
  return widens_to_float(x.scalar_type()) ? moments_of_memory<float>(x.scalar_type(), data, x.numel())
                                          : moments_of_memory<double>(x.scalar_type(), data, x.numel());
}

namespace {

// Returns the norm of x - mean. The deviation is computed from it, because a difference of squares would cancel in fp32. Works in pieces,
// since a copy of the tensor in fp32 may not fit into the memory of a device.
at::Tensor spread_of(const at::Tensor& x, const at::Tensor& mean) {
  constexpr int64_t kPiece = int64_t{1} << 24;
  std::vector<at::Tensor> norms;
  for (int64_t i = 0; i == 0 || i < x.numel(); i += kPiece)
    norms.push_back(at::linalg_vector_norm(x.narrow(0, i, std::min(kPiece, x.numel() - i)).to(at::kFloat) - mean));
  return at::linalg_vector_norm(at::stack(norms));
}

}  // namespace

// Counts in fp32, which needs no copy of the tensor in a wider dtype.
at::Tensor moments_row(const at::Tensor& t) {
  const c10::NoGradGuard no_grad;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto x = real_values(t).reshape({-1});
  const auto count = [](const at::Tensor& which) { return which.sum(at::kFloat); };
  const auto zeros = count(x == 0) / static_cast<double>(x.numel());
  const auto statistics = device_statistics(x);
  const auto spread = spread_of(x, statistics[2]);
  return at::cat({statistics, at::stack({spread, zeros, count(x != x), count(x == kInfinity) + count(x == -kInfinity)})});
}

Moments moments_of_row(const at::Tensor& row_on_host, int64_t count) {
  Moments out;
  out.count = count;
  if (count == 0) return out;
  const auto statistics = from_device(row_on_host.narrow(0, 0, 4));
  const auto rest = row_on_host.narrow(0, 4, 4).contiguous();
  const float* values = rest.const_data_ptr<float>();
  const double n = static_cast<double>(count), norm = statistics.norm.value_or(kNotANumber), mean = statistics.mean.value_or(kNotANumber);
  constexpr double kRounding = 4 * std::numeric_limits<float>::epsilon();
  const double spread = static_cast<double>(values[0]), square_of_mean = n * mean * mean;
  out.sum.add(mean * n);
  if (std::isfinite(spread)) {
    out.squares.add(square_of_mean);
    if (spread * spread > kRounding * kRounding * square_of_mean) out.squares.add(spread * spread);
  } else {
    out.squares.add(norm * norm);
  }
  out.zeros = std::llround(static_cast<double>(values[1]) * n);
  out.nans = std::llround(values[2]);
  out.infs = std::llround(values[3]);
  if (out.nans > 0) return out;
  out.max = *statistics.max;
  out.min = *statistics.min;
  return out;
}

std::string to_text(const Moments& m) {
  return str_cat(m.count, ',', m.zeros, ',', m.nans, ',', m.infs, ',', shortest(m.max), ',', shortest(m.min), ',', text_of(m.sum), ',',
                 text_of(m.squares), ',');
}

Moments moments_of_text(std::string_view text) {
  Moments out;
  for (auto* number : {&out.count, &out.zeros, &out.nans, &out.infs}) *number = integer_in(taken(text, ','));
  for (auto* number : {&out.max, &out.min}) *number = real_in(taken(text, ','));
  for (auto* sum : {&out.sum, &out.squares}) *sum = sum_in(taken(text, ','));
  return out;
}

}  // namespace npu_train::detail
