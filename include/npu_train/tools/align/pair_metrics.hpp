/// How far two tensors of the same run are apart, in one pass over both: the metrics of Ascend's msprobe and some that it lacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace npu_train {

/// Metrics of a (what is judged) against b (the reference), all sums in double precision.
///
/// The compared elements are those where both are finite, or both NaN, or both the same infinity; such an equal pair counts as two
/// zeros. All other pairs are nonfinite_mismatch: they enter no sum, no norm and no mean, and they are within no thousandth.
struct PairMetrics {
  int64_t elements = 0;
  /// a.b / (|a| |b|): 1 where both norms are at most the epsilon of float64 (2.2e-16), NaN where one is. (msprobe gives none for a
  /// single element; this is then 1 or -1.)
  double cosine = 1;
  double euclidean = 0;  ///< L2 norm of a - b
  double max_abs = 0;    ///< largest |a - b|
  double mean_abs = 0;   ///< mean |a - b| of the compared elements
  double rmse = 0;       ///< root of the mean (a - b)^2 of the compared elements
  /// Largest |(a - b) / b|. Where b is 0 an epsilon is added to both, as msprobe does, so that this is |a| / epsilon: the machine
  /// epsilon of the coarser floating dtype of the two (bfloat16 2^-7, float16 2^-10, float32 2^-23; float64 2^-52, for integers too).
  double max_relative = 0;
  double one_thousandth = 1;      ///< share of all elements whose relative error is below 0.001
  double five_thousandth = 1;     ///< the same below 0.005
  double norm_a = 0, norm_b = 0;  ///< L2 norms of the compared elements
  double norm_ratio = 1;          ///< norm_a / norm_b; 1 where both are 0
  double relative_norm = 0;       ///< euclidean / norm_b; 0 where both are 0
  /// Distance in units in the last place: how many numbers of the coarser floating dtype lie between a and b, both rounded to it, the
  /// end included; -0 and 0 are the same number. NaN if neither dtype is a floating one.
  double max_ulp = 0, mean_ulp = 0;
  /// Of each tensor as it is, non-finite elements too; as in torch, NaN if a NaN is among them. NaN for no elements.
  double max_a = 0, min_a = 0, mean_a = 0, max_b = 0, min_b = 0, mean_b = 0;
  int64_t nan_a = 0, nan_b = 0, inf_a = 0, inf_b = 0;
  int64_t nonfinite_mismatch = 0;
  /// Same dtype and same bytes: NaN equals a NaN of the same bits, and -0 is not 0.
  bool identical = true;
  /// CRC-32 of each one's bytes (see crc32_of), where they were asked for.
  std::optional<uint32_t> crc_a, crc_b;
};

/// Takes a pair of tensors piece by piece, so that neither must be in memory at once.
///
///   PairAccumulator pair(at::kFloat, at::kBFloat16);
///   while (read(a, b, n)) pair.add(a, b, n);
///   const PairMetrics metrics = pair.result();
///
/// float32, bfloat16 and float16 are compared as float32, a pair with any other dtype as float64 (which rounds integers of more than
/// 53 bits). Pieces where both are bit for bit the same are taken by a shorter way. The result depends on neither the number of
/// threads nor the instruction set; other piece sizes may change the last bits of sums.
class PairAccumulator {
 public:
  /// Error(Usage) for dtypes that are not real numbers (complex, quantised, 8-bit floats). `with_crc`: compute crc_a and crc_b, which
  /// takes longer than all the rest.
  PairAccumulator(at::ScalarType a, at::ScalarType b, bool with_crc = false);
  ~PairAccumulator();
  PairAccumulator(PairAccumulator&&) noexcept;
  PairAccumulator& operator=(PairAccumulator&&) noexcept;

  /// The next `n` elements of both, at any address, by all threads of at::parallel_for (by one inside a parallel region).
  /// Pieces of 1 MB and more keep them busy.
  void add(const void* a, const void* b, int64_t n);

  /// Takes what `later` has seen as if it had been added here after the rest. Error(Usage) if it was made for other dtypes.
  void merge(const PairAccumulator& later);

  /// Of all elements so far.
  PairMetrics result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Metrics of two CPU tensors with the same number of elements, compared in C order. Error(Usage) for others.
PairMetrics compare_tensors(const at::Tensor& a, const at::Tensor& b, bool with_crc = false);

}  // namespace npu_train
