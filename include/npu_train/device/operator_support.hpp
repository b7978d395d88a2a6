/// How libtorch's operators run on Ascend NPUs, from tables: kernels that torch_npu 2.11 and 2.13 register for each overload of ATen, and
/// the entries of the vendor's list of APIs (src/device/facts/ascend_operators.tsv). None of it was tested on a device.
#pragma once

#include <string>
#include <vector>

namespace npu_train {

enum class OperatorSupport {
  Native,       ///< a kernel of the NPU
  Composite,    ///< no kernel of its own: libtorch makes it of others, which are not looked up
  Limited,      ///< with limits by dtype, shape or series of chips
  CpuFallback,  ///< computed on the host, with copies there and back at every call
  Unsupported,  ///< refused
  Custom,       ///< of another library than ATen, or known to need a kernel of the user's own
  Unknown       ///< in no table
};

/// "native", "composite", "limited", "cpu_fallback", "unsupported", "custom", "unknown".
const char* support_name(OperatorSupport support);

struct OperatorFacts {
  OperatorSupport support = OperatorSupport::Unknown;
  std::string limits{};               ///< why it is limited; may be empty where the list does not say
  std::vector<std::string> dtypes{};  ///< of the first input, as listed ("fp16", "int64"); empty: the list is silent
  bool composite = false;             ///< has no kernel of its own, whatever `support` says
};

/// What the tables know for chips of one kind.
class AscendOperators {
 public:
  /// `soc` as CANN or npu-smi name a chip ("Ascend910B1", "910b1"), or a series: "910B", "910C", "910_93", "950", "310P", "310B".
  /// `torch`: "2.11" to "2.13". Error(Usage) for others, with the known names.
  AscendOperators(const std::string& soc, const std::string& torch);

  /// `library` "aten", `name` "conv2d", `overload` "padding" or "".
  OperatorFacts find(const std::string& library, const std::string& name, const std::string& overload) const;
  /// Whether the chip multiplies bf16.
  bool bf16() const { return bf16_; }
  /// "Ascend910B1".
  const std::string& soc() const { return soc_; }
  /// What was assumed where only a series was given, or where the list has no column for the chip; "" where nothing was.
  const std::string& assumed() const { return assumed_; }

 private:
  std::string soc_, assumed_;
  bool bf16_ = true;
  int column_ = 0;  // of the vendor's list: A2, A3, 950
};

/// Whether an operator is a kernel that libtorch has for CPUs alone (`library` "mkldnn", `name` "_linear_pointwise"): on another device the
/// program takes another one in its place.
bool is_of_the_cpu(const std::string& library, const std::string& name);

/// The word of the tables for a dtype of libtorch ("c10::Half" is "fp16"); other dtypes as libtorch names them, in lower case.
std::string listed_dtype(const std::string& dtype_name);

}  // namespace npu_train
