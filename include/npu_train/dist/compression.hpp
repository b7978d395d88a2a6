/// Compression of the gradients that ranks exchange (`dist.compression`), and the state that it carries from step to step.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"

namespace npu_train {

/// The parsed value of `dist.compression`: a method, a value encoding, or both joined by "+" (topk:0.01+int8). topk also accepts an upper
/// bound of the sent bytes: topk:0.01+ratio:0.1.
struct Compression {
  enum class Method {
    All,      ///< every element is sent
    Largest,  ///< only the largest elements of each bucket are sent, with their indices. Selected by topk:SHARE, by ratio:R with a value
              ///< encoding, and by ratio:R alone if 2 bits per element would exceed R
    LowRank,  ///< matrices are sent as two low-rank factors: powersgd:RANK
  };
  Method method = Method::All;
  std::string values = "fp32";  ///< value encoding: fp32 | bf16 | fp16 | int8, which has a scale for each block of 256 elements
  double share = 0;             ///< topk: share of the elements of a bucket; 0: not set
  double ratio = 0;  ///< ratio: maximum of the sent bytes, as a share of fp32's; used alone, it selects integers of 2 to 8 bits; 0: not set
  int64_t rank = 0;  ///< powersgd: columns of each factor

  /// Parses the value of `dist.compression`. Error(Usage) lists the allowed forms if it is not valid.
  static Compression parse(const std::string& text);
  bool none() const { return method == Method::All && values == "fp32"; }
  /// Whether the compression error of a window is added to the gradients of the next one: error feedback (Seide et al. 2014; Karimireddy et
  /// al. 2019, arXiv:1901.09847).
  bool has_error_feedback() const { return method != Method::All || values == "int8"; }

  static constexpr int64_t kBlock = 256;  ///< number of integers that share a scale
  /// Returns the encoded size in bytes of n integers of `bits` bits (2 to 8), scales included.
  static int64_t integer_bytes(int64_t n, int bits);
  /// Returns the largest bit width (2 to 8) that keeps n values within `ratio`. Returns 0 if none does, or if topk or an encoding is set.
  int bits_within_ratio(int64_t n) const;

  static constexpr int64_t kPlaceBytes = 4;  ///< size of the index of an element that is sent individually
  /// Returns the size in bytes of n elements in the encoding `values`.
  int64_t coded_bytes(int64_t n) const { return values == "int8" ? integer_bytes(n, 8) : n * (values == "fp32" ? 4 : 2); }
  /// Returns the number of elements of a bucket, at least 1, that each rank sends to every other rank with topk or ratio. `in_shards`: each
  /// rank keeps only its part of the sums.
  int64_t elements_sent(int64_t elements, int ranks, bool in_shards) const;
};

/// Compression state that is carried from step to step, in the form that checkpoints save.
struct CompressionState {
  State shared;         ///< equal on every rank
  ParameterSet slices;  ///< this rank's slices of tensors that are divided among ranks; Parameter::sliced_from is on device meta
};

}  // namespace npu_train
