/// Compares the software of a machine for Ascend NPUs with recommended and required versions: those for CANN 7 (guides of 2023) and
/// today's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// A row of src/tools/doctor/facts/matrix.tsv with the installed version.
struct MatrixRow {
  std::string component;                         ///< "CANN", "Python", "atc"
  std::string here;                              ///< version or path on this machine; "" if not installed
  std::string recommended_cann7, minimum_cann7;  ///< "": none
  std::string recommended, minimum;              ///< for today's CANN
  std::string note;
  /// Whether `here` is a version below the older of the two minima.
  bool too_old() const;
};

/// Returns the table. Runs `python3 --version`, `cmake --version` and `gcc -dumpfullversion`.
std::vector<MatrixRow> environment_matrix(const HostView& host, const ProcessFacts& process);

/// Facts about a card in addition to its kind.
struct CardFacts {
  std::string name;  ///< "NVIDIA H100 80GB HBM3", "910B3"; "" if no tool of the vendor reports it
  std::string cann;  ///< version of CANN, for NPUs
};

/// Returns facts from npu-smi and the files of CANN for kind "npu", from nvidia-smi for "cuda"; empty for other kinds.
CardFacts card_facts(const HostView& host, const std::string& kind, int index);

/// Reports the rows, and the related variables.
Report matrix_report(const std::vector<MatrixRow>& rows, const HostView& host);

}  // namespace npu_train
