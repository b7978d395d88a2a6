/// Compatible versions, as a dated table (src/tools/doctor/facts/versions.tsv).
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// A version in the notation of CANN, drivers and torch: 9.1.0, 8.3.RC1, 8.5.0.alpha002, 25.2.0, 2.13.0+cpu, 2.10.0.post4. '.' and '-'
/// separate parts. Order: alpha < beta < T (trial) < RC < release < post. 9.1 equals 9.1.0. Text after '+' or after an unknown part is
/// ignored.
struct Version {
  struct Part {
    int rank = 0;  ///< 0 alpha, 1 beta, 2 T, 3 RC, 4 number, 5 post
    int number = 0;
    auto operator<=>(const Part&) const = default;
  };
  std::vector<Part> parts;

  /// Returns nullopt for text that does not begin with a number.
  static std::optional<Version> parse(std::string_view text);
  std::weak_ordering operator<=>(const Version& other) const;
  bool operator==(const Version& other) const { return (*this <=> other) == std::weak_ordering::equivalent; }
  /// Returns "9.1" for 9.1.0.
  std::string minor() const;
};

/// The required version of one component for a version of another component.
struct VersionRule {
  std::string what;         ///< "cann_for_torch_npu", "driver_for_cann", "driver_for_cuda", ...
  std::string key;          ///< minor version of the other component; "" if the rule applies to all versions
  std::string recommended;  ///< "" if unknown
  std::string minimum;      ///< "" if unknown
  bool checked = true;      ///< verified in a source; other rules must not cause a failure
};

/// Returns the rule for `what` whose key is the minor version of `version`; nullopt if the table has none.
std::optional<VersionRule> version_rule(std::string_view what, std::string_view version = "");
/// Returns the table's keys for `what`, in its order.
std::vector<std::string> version_keys(std::string_view what);
/// Returns the date of the table: "2026-11-21".
std::string version_matrix_date();

}  // namespace npu_train
