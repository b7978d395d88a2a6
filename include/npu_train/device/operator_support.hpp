/// Support of libtorch's operators on Ascend NPUs, according to two tables: the kernels that torch_npu 2.11 and 2.13 register for each ATen
/// overload, and the vendor's list of APIs (src/device/facts/ascend_operators.tsv). None of it was tested on a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu_train {

enum class OperatorSupport {
  Native,       ///< has an NPU kernel
  Composite,    ///< no kernel of its own: libtorch composes it from other operators, which are not looked up
  Limited,      ///< limited by dtype, shape or chip series
  CpuFallback,  ///< computed on the host; each call copies in both directions
  Unsupported,  ///< torch_npu refuses it
  Custom,       ///< from a library other than ATen, or known to require a kernel written by the user
  Unknown       ///< not in the tables
};

/// Returns "native", "composite", "limited", "cpu_fallback", "unsupported", "custom", "unknown".
const char* support_name(OperatorSupport support);

struct OperatorFacts {
  OperatorSupport support = OperatorSupport::Unknown;
  std::string limits{};               ///< reason for `Limited`; may be empty if the list gives none
  std::vector<std::string> dtypes{};  ///< dtypes of the first input, as listed ("fp16", "int64"); empty if the list gives none
  bool composite = false;             ///< has no kernel of its own, whatever `support` is
};

/// The tables' entries for one kind of chip.
class AscendOperators {
 public:
  /// `soc` is a chip as named by CANN or npu-smi ("Ascend910B1", "910b1"), a series ("910B", "910C", "910_93", "950", "310P", "310B"), or a
  /// card or server by the vendor's name ("Atlas 300I Pro"; src/device/facts/ascend_cards.tsv). `torch`: "2.11" to "2.13". Error(Usage) for
  /// others; the message lists the known names.
  AscendOperators(const std::string& soc, const std::string& torch);

  /// Returns the facts about an operator, such as `library` "aten", `name` "conv2d", `overload` "padding" or "".
  OperatorFacts find(const std::string& library, const std::string& name, const std::string& overload) const;
  /// Returns whether the chip multiplies bf16.
  bool bf16() const { return bf16_; }
  /// Returns CANN's name of the chip: "Ascend910B1".
  const std::string& soc() const { return soc_; }
  /// Returns a text about the assumptions that were made: the chip for which a series or a card is taken, the memory of a card, or the use
  /// of the vendor's list for another series. "" if there are none.
  const std::string& assumed() const { return assumed_; }
  /// Returns the memory in bytes of one NPU of the card, for its smallest variant; 0 if `soc` is not a card, or if the vendor's pages do
  /// not state the size.
  int64_t memory() const { return memory_; }

 private:
  std::string soc_, assumed_;
  bool bf16_ = true;
  int64_t memory_ = 0;
  int column_ = 0;  // column of the vendor's list: A2, A3, 950
};

/// True for kernels that libtorch has only for CPUs (`library` "mkldnn", `name` "_linear_pointwise"). On another device, the program runs a
/// different operator instead.
bool is_of_the_cpu(const std::string& library, const std::string& name);

/// Returns the tables' word for a libtorch dtype ("c10::Half" is "fp16"); other dtypes keep libtorch's name, in lower case.
std::string listed_dtype(const std::string& dtype_name);

}  // namespace npu_train
