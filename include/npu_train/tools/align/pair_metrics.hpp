/// The difference of two corresponding tensors, in one pass over both: the metrics of Ascend's msprobe and some that it lacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace npu_train {

/// Metrics of a (the judged tensor) relative to b (the reference), with all sums in double precision.
///
/// The compared elements are the pairs in which both elements are finite, both are NaN, or both are the same infinity. A compared pair of
/// NaN or infinities counts as two zeros. Pairs that are not compared are counted in `nonfinite_mismatch`. They are excluded from sums,
/// norms and means, and they do not count as close in `one_thousandth` and `five_thousandth`.
struct PairMetrics {
  int64_t elements = 0;
  /// Cosine a.b / (|a| |b|). It is 1 if both norms are at most the epsilon of float64 (2.2e-16), and NaN if only one norm is that small.
  /// (For a single element, msprobe returns no cosine; here it is 1 or -1.)
  double cosine = 1;
  double euclidean = 0;  ///< L2 norm of a - b
  double max_abs = 0;    ///< largest |a - b|
  double mean_abs = 0;   ///< mean |a - b| of the compared elements
  double rmse = 0;       ///< root of the mean (a - b)^2 of the compared elements
  /// Largest |(a - b) / b|. If b is 0, an epsilon is added to a and b, as in msprobe, so that the result is |a| / epsilon. The epsilon is
  /// the machine epsilon of the coarser floating dtype of the two (bfloat16 2^-7, float16 2^-10, float32 2^-23; float64 2^-52, for integers
  /// too).
  double max_relative = 0;
  double one_thousandth = 1;      ///< fraction of all elements whose relative error is below 0.001
  double five_thousandth = 1;     ///< fraction of all elements whose relative error is below 0.005
  double norm_a = 0, norm_b = 0;  ///< L2 norms of the compared elements
  double norm_ratio = 1;          ///< norm_a / norm_b; 1 if both are 0
  double relative_norm = 0;       ///< euclidean / norm_b; 0 if both are 0
  /// Distance in units in the last place: a and b are rounded to the coarser floating dtype, and the steps from one to the other among the
  /// values of this dtype are counted; -0 and 0 are the same value. NaN if neither dtype is a floating dtype.
  double max_ulp = 0, mean_ulp = 0;
  /// Extremes and means of the complete tensors, including non-finite elements. NaN if there is a NaN, as in torch, or if there are no
  /// elements.
  double max_a = 0, min_a = 0, mean_a = 0, max_b = 0, min_b = 0, mean_b = 0;
  int64_t nan_a = 0, nan_b = 0, inf_a = 0, inf_b = 0;
  int64_t nonfinite_mismatch = 0;
  /// Whether dtype and bytes are equal: NaN equals a NaN with the same bits, and -0 differs from 0.
  bool identical = true;
  /// CRC-32 of the bytes of a and b (see crc32_of), if requested.
  std::optional<uint32_t> crc_a, crc_b;
};

/// Compares a pair of tensors piece by piece, so that neither must be completely in memory.
///
///   PairAccumulator pair(at::kFloat, at::kBFloat16);
///   while (read(a, b, n)) pair.add(a, b, n);
///   const PairMetrics metrics = pair.result();
///
/// float32, bfloat16 and float16 are compared as float32, a pair with any other dtype as float64 (which rounds integers of more than 53
/// bits). Pieces with equal bits use a faster path. The result depends neither on the number of threads nor on the instruction set; other
/// piece sizes may change the last bits of sums.
class PairAccumulator {
 public:
  /// Error(Usage) for dtypes that are not real numbers (complex, quantised, 8-bit floats). `with_crc`: also computes `crc_a` and `crc_b`,
  /// which takes longer than all other metrics together.
  PairAccumulator(at::ScalarType a, at::ScalarType b, bool with_crc = false);
  ~PairAccumulator();
  PairAccumulator(PairAccumulator&&) noexcept;
  PairAccumulator& operator=(PairAccumulator&&) noexcept;

  /// Adds the next `n` elements of both tensors; their addresses need no alignment. Uses all threads of at::parallel_for, or one thread
  /// inside a parallel region. Pieces of at least 1 MB keep all threads busy.
  void add(const void* a, const void* b, int64_t n);

  /// Appends the elements of `later`. Error(Usage) if `later` was constructed with other arguments.
  void merge(const PairAccumulator& later);

  /// Returns the metrics of all elements so far.
  PairMetrics result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the metrics of two CPU tensors with equal numbers of elements, compared in C order. Error(Usage) otherwise.
PairMetrics compare_tensors(const at::Tensor& a, const at::Tensor& b, bool with_crc = false);

}  // namespace npu_train
