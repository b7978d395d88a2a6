/// How gradients are compressed on their way between ranks (`dist.compression`), and what that carries from step to step.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"

namespace npu_train {

/// The value of `dist.compression`: one method, one code of the values that travel, or both joined by "+", as in topk:0.01+int8. With topk
/// also an upper bound: topk:0.01+ratio:0.1.
struct Compression {
  enum class Method {
    All,      ///< every element travels
    Largest,  ///< the largest elements of each bucket travel, with their places: topk:SHARE, ratio:R with a code, or for less than 2 bits
    LowRank,  ///< matrices travel as two factors: powersgd:RANK
  };
  Method method = Method::All;
  std::string values = "fp32";  ///< the code of values: fp32 | bf16 | fp16 | int8, with a scale for each block of 256
  double share = 0;             ///< topk: of the elements of a bucket; 0: not given
  double ratio = 0;             ///< ratio: at most this share of the bytes that fp32 sends, alone as integers of 2 to 8 bits; 0: not given
  int64_t rank = 0;             ///< powersgd: columns of each factor

  /// Error(Usage) names what is allowed.
  static Compression parse(const std::string& text);
  bool none() const { return method == Method::All && values == "fp32"; }
  /// Whether what a window leaves out is added to the gradients of the next one (Seide et al. 2014; Karimireddy et al. 2019,
  /// arXiv:1901.09847).
  bool carries_errors() const { return method != Method::All || values == "int8"; }

  static constexpr int64_t kBlock = 256;  ///< integers that share a scale
  /// Of n numbers as integers of 2 to 8 bits with their scales.
  static int64_t integer_bytes(int64_t n, int bits);
  /// For a ratio alone: the most bits with which all of n numbers travel as integers; 0 if even 2 are too many, and for all else.
  int bits_within_ratio(int64_t n) const;
};

/// State that compression carries from step to step, as a checkpoint has it.
struct CarriedState {
  State shared;         ///< the same on every rank
  ParameterSet slices;  ///< of this rank, each of a tensor that the ranks have together; Parameter::sliced_from is on device meta
};

}  // namespace npu_train
