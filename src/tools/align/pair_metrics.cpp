#include "npu_train/tools/align/pair_metrics.hpp"

#include <c10/core/GradMode.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "npu_train/core/error.hpp"
#include "tools/align/block_kernels.hpp"
#include "tools/align/chunks.hpp"
#include "tools/align/crc32.hpp"

namespace npu_train {
namespace detail {

struct PairSums {
  int64_t elements = 0, mismatches = 0;
  bool same_bytes = true;
  ValueSums a, b;
  double squares_a = 0, squares_b = 0;  // squared norms of the compared elements
  ErrorSums errors;

  void join(const PairSums& later) {
    elements += later.elements;
    mismatches += later.mismatches;
    same_bytes &= later.same_bytes;
    a.join(later.a);
    b.join(later.b);
    squares_a += later.squares_a;
    squares_b += later.squares_b;
    errors.join(later.errors);
  }
};

struct PairPart {
  PairSums sums;
  uint32_t crc_a = 0, crc_b = 0;
};

struct PairTypes {
  at::ScalarType a, b;
  int64_t size_a, size_b;
  at::ScalarType grid;  // the coarser floating dtype, or Undefined
  double epsilon;       // epsilon of `grid`
};

}  // namespace detail

namespace {

using detail::PairPart;
using detail::PairSums;
using detail::PairTypes;

PairTypes types_of(at::ScalarType a, at::ScalarType b) {
  struct Grid {
    at::ScalarType dtype;
    double epsilon;
  };
  static constexpr std::array<Grid, 4> kCoarsestFirst = {
      {{at::kBFloat16, 0x1p-7}, {at::kHalf, 0x1p-10}, {at::kFloat, 0x1p-23}, {at::kDouble, 0x1p-52}}};
  const auto size = [](at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); };
  PairTypes out{a, b, size(a), size(b), at::ScalarType::Undefined, 0x1p-52};
  for (const auto& grid : kCoarsestFirst) {
    if (grid.dtype != a && grid.dtype != b) continue;
    out.grid = grid.dtype;
    out.epsilon = grid.epsilon;
    break;
  }
  return out;
}

// Copies both arrays, but writes 0 to both outputs if an element of the pair is not finite. Returns the number of such pairs whose elements
// do not match.
template <class T>
int64_t without_nonfinite(const T* a, const T* b, int64_t n, T* to_a, T* to_b) {
  int64_t mismatches = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i], y = b[i];
    const bool finite = std::isfinite(x) && std::isfinite(y);
    mismatches += !finite && !(x == y || (std::isnan(x) && std::isnan(y)));
    to_a[i] = finite ? x : 0;
    to_b[i] = finite ? y : 0;
  }
  return mismatches;
}

template <class T>
struct PairBuffers {
  alignas(64) T a[detail::kBlock], b[detail::kBlock];
};

template <class T>
PairSums sums_of_block(const PairTypes& types, const char* a, const char* b, int64_t n, PairBuffers<T>& buffers) {
  const auto& kernels = detail::block_kernels<T>();
  PairSums out;
  out.elements = n;
  out.same_bytes = types.a == types.b && std::memcmp(a, b, static_cast<size_t>(n * types.size_a)) == 0;
  const T* x = kernels.widened(types.a, a, n, buffers.a);
  out.a = kernels.values(x, n);
  out.squares_a = out.squares_b = out.a.squares;
  const bool finite_a = std::isfinite(out.a.sum);
  if (out.same_bytes) {
    out.b = out.a;
    if (!finite_a) {
      without_nonfinite(x, x, n, buffers.a, buffers.b);
      out.squares_a = out.squares_b = kernels.values(buffers.a, n).squares;
    }
    out.errors.dot = out.squares_a;
    out.errors.one_thousandth = out.errors.five_thousandth = n;
    return out;
  }
  const T* y = kernels.widened(types.b, b, n, buffers.b);
  out.b = kernels.values(y, n);
  out.squares_b = out.b.squares;
  if (!finite_a || !std::isfinite(out.b.sum)) {
    out.mismatches = without_nonfinite(x, y, n, buffers.a, buffers.b);
    x = buffers.a;
    y = buffers.b;
    out.squares_a = kernels.values(x, n).squares;
    out.squares_b = kernels.values(y, n).squares;
  }
  out.errors = kernels.errors(x, y, n, types.epsilon, types.grid);
  out.errors.one_thousandth -= out.mismatches;  // mismatches were compared as zeros, which count as close
  out.errors.five_thousandth -= out.mismatches;
  return out;
}

template <class T>
PairSums sums_of_chunk(const PairTypes& types, const char* a, const char* b, int64_t n) {
  PairBuffers<T> buffers;
  PairSums out;
  for (int64_t i = 0; i < n; i += detail::kBlock) {
    out.join(sums_of_block(types, a + i * types.size_a, b + i * types.size_b, std::min(detail::kBlock, n - i), buffers));
  }
  return out;
}

double cosine_of(double dot, double norm_a, double norm_b) {
  constexpr double kZero = std::numeric_limits<double>::epsilon();
  if (norm_a <= kZero && norm_b <= kZero) return 1;
  if (norm_a <= kZero || norm_b <= kZero) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(dot / norm_a / norm_b, -1.0, 1.0);
}

double ratio_of(double over, double under, double of_zeros) { return over == 0 && under == 0 ? of_zeros : over / under; }

}  // namespace

struct PairAccumulator::State {
  PairTypes types;
  bool with_crc;
  PairPart seen;

  void append(const PairPart& later) {
    if (with_crc) {
      seen.crc_a = detail::crc32_joined(seen.crc_a, later.crc_a, later.sums.elements * types.size_a);
      seen.crc_b = detail::crc32_joined(seen.crc_b, later.crc_b, later.sums.elements * types.size_b);
    }
    seen.sums.join(later.sums);
  }
};

PairAccumulator::PairAccumulator(at::ScalarType a, at::ScalarType b, bool with_crc) {
  for (const auto type : {a, b})
    check(detail::widens_to_double(type), ErrorKind::Usage, "PairAccumulator", "dtype ", c10::toString(type),
          "; allowed: floats of 16 to 64 bits, integers and bool; hint: convert the tensors first; complex ones with at::view_as_real");
  state_ = std::make_unique<State>(State{types_of(a, b), with_crc, {}});
}

PairAccumulator::~PairAccumulator() = default;
PairAccumulator::PairAccumulator(PairAccumulator&&) noexcept = default;
PairAccumulator& PairAccumulator::operator=(PairAccumulator&&) noexcept = default;

void PairAccumulator::add(const void* a, const void* b, int64_t n) {
  check(n >= 0 && (n == 0 || (a != nullptr && b != nullptr)), ErrorKind::Usage, "PairAccumulator", n,
        " elements; the number must be at least 0, with memory for both tensors");
  const auto& types = state_->types;
  const bool floats = detail::widens_to_float(types.a) && detail::widens_to_float(types.b);
  const auto parts = detail::parts_of_chunks(n, [&](int64_t start, int64_t count) {
    const char* from_a = static_cast<const char*>(a) + start * types.size_a;
    const char* from_b = static_cast<const char*>(b) + start * types.size_b;
    PairPart part;
    part.sums = floats ? sums_of_chunk<float>(types, from_a, from_b, count) : sums_of_chunk<double>(types, from_a, from_b, count);
    if (state_->with_crc) {
      part.crc_a = detail::crc32_of_bytes(from_a, count * types.size_a);
      part.crc_b = detail::crc32_of_bytes(from_b, count * types.size_b);
    }
    return part;
  });
  for (const auto& part : parts) state_->append(part);
}

void PairAccumulator::merge(const PairAccumulator& later) {
  const State& other = *later.state_;
  const auto kind = [](const State& s) {
    return std::string(c10::toString(s.types.a)) + " and " + c10::toString(s.types.b) + (s.with_crc ? " with CRC" : " without CRC");
  };
  check(kind(other) == kind(*state_), ErrorKind::Usage, "PairAccumulator", "the other accumulator is for ", kind(other),
        "; it must be for ", kind(*state_));
  state_->append(PairPart(other.seen));  // a copy, since `later` may be *this
}

PairMetrics PairAccumulator::result() const {
  const auto& sums = state_->seen.sums;
  const auto& errors = sums.errors;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  PairMetrics out;
  out.elements = sums.elements;
  out.norm_a = std::sqrt(sums.squares_a);
  out.norm_b = std::sqrt(sums.squares_b);
  out.cosine = cosine_of(errors.dot, out.norm_a, out.norm_b);
  out.euclidean = std::sqrt(errors.squares);
  out.norm_ratio = ratio_of(out.norm_a, out.norm_b, 1);
  out.relative_norm = ratio_of(out.euclidean, out.norm_b, 0);
  out.max_abs = errors.max_abs;
  out.max_relative = errors.max_relative;
  out.max_ulp = errors.max_ulp;
  if (const auto compared = static_cast<double>(sums.elements - sums.mismatches); compared > 0) {
    out.mean_abs = errors.abs / compared;
    out.rmse = std::sqrt(errors.squares / compared);
    out.mean_ulp = errors.ulp / compared;
  }
  const auto count = static_cast<double>(sums.elements);
  if (sums.elements > 0) {
    out.one_thousandth = static_cast<double>(errors.one_thousandth) / count;
    out.five_thousandth = static_cast<double>(errors.five_thousandth) / count;
  }
  if (state_->types.grid == at::ScalarType::Undefined) out.max_ulp = out.mean_ulp = kNone;
  const auto describe = [&](const detail::ValueSums& side, double& max, double& min, double& mean) {
    const bool known = sums.elements > 0 && side.nan == 0;
    max = known ? side.max : kNone;
    min = known ? side.min : kNone;
    mean = known ? side.sum / count : kNone;
  };
  describe(sums.a, out.max_a, out.min_a, out.mean_a);
  describe(sums.b, out.max_b, out.min_b, out.mean_b);
  out.nan_a = sums.a.nan;
  out.nan_b = sums.b.nan;
  out.inf_a = sums.a.inf;
  out.inf_b = sums.b.inf;
  out.nonfinite_mismatch = sums.mismatches;
  out.identical = sums.same_bytes && state_->types.a == state_->types.b;
  if (state_->with_crc) {
    out.crc_a = state_->seen.crc_a;
    out.crc_b = state_->seen.crc_b;
  }
  return out;
}

PairMetrics compare_tensors(const at::Tensor& a, const at::Tensor& b, bool with_crc) {
  for (const auto* t : {&a, &b})
    check(t->defined() && t->is_cpu() && t->layout() == at::kStrided && !t->is_quantized(), ErrorKind::Usage, "compare_tensors",
          "not a dense CPU tensor; hint: copy it to the host first");
  check(a.numel() == b.numel(), ErrorKind::Usage, "compare_tensors", a.numel(), " and ", b.numel(), " elements; the numbers must be equal");
  return translated("compare_tensors", [&] {
    const c10::NoGradGuard no_grad;
    const auto in_order = [](const at::Tensor& t) { return t.detach().resolve_conj().resolve_neg().contiguous(); };
    PairAccumulator pair(a.scalar_type(), b.scalar_type(), with_crc);
    // Any order that both tensors share is as good as C order.
    const bool as_they_lie =
        !with_crc && a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_non_overlapping_and_dense() && !a.is_neg() && !b.is_neg();
    const auto x = as_they_lie ? a : in_order(a), y = as_they_lie ? b : in_order(b);
    pair.add(x.const_data_ptr(), y.const_data_ptr(), x.numel());
    return pair.result();
  });
}

}  // namespace npu_train
