/// The parts of a model that will not run, or not run well, on an Ascend NPU, found on a machine without one: one training step runs here,
/// and the operators that it dispatches are looked up in tables (device/operator_support.hpp). The tables are facts about versions, not
/// tests on a chip.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/device/operator_support.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/analyze/operator_inventory.hpp"

namespace npu_train {

class Task;
class Batch;

struct AnalysisOptions {
  std::string soc = "910B1";   ///< the chip as CANN or npu-smi name it, or its series: "910B" (AscendOperators)
  std::string torch = "2.11";  ///< version of torch_npu: 2.11 to 2.13
  int64_t hbm = 0;             ///< bytes of the card; 0: not judged
  int64_t predicted_peak = 0;  ///< bytes that the training will need, if predicted
  std::string fits_with{};     ///< if that is more than `hbm`: overrides with which it would fit; "": none is known
};

/// A finding of the analysis.
struct MigrationFinding {
  std::string kind;      ///< unsupported | custom | many_custom | cpu_fallback | limited | unknown | dtype | dynamic_shape | host_read |
                         ///< fp64 | int64 | alignment | parameter_dtypes | bf16 | memory | memory_change | series | composite
  std::string severity;  ///< blocks | change | check | note
  std::string subject;   ///< the operator, layer or parameter
  std::string detail;    ///< the observation
  std::string advice;    ///< the remedy
  double hours = 0;      ///< of work, from src/tools/analyze/facts/advice.tsv: an order of magnitude
};

struct Analysis {
  struct Operator {
    OperatorUse use;
    OperatorFacts facts;
  };
  AnalysisOptions options;
  std::vector<Operator> operators;                                ///< longest first
  std::vector<MigrationFinding> findings;                         ///< worst first
  std::vector<std::pair<std::string, int64_t>> parameter_dtypes;  ///< "fp32", number of tensors
  std::vector<std::string> notes;                                 ///< how the analysed step differs from the one on the chip
  double seconds = 0;                                             ///< of all operators

  /// Sum over the findings.
  double hours() const;
  /// ready | feasible | blocked.
  std::string verdict() const;
};

/// Looks up the collected operators.
Analysis analyze(const OperatorInventory& inventory, const ParameterSet& parameters, const AnalysisOptions& options = {});
/// Runs forward and backward of `task` on one batch, in training mode and fp32, and looks up the dispatched operators. The gradients are
/// dropped; running statistics change. Errors of the model are rethrown.
Analysis analyze(Task& task, const Batch& batch, const AnalysisOptions& options = {});

/// For a terminal; `width` columns, 0: unlimited. At most `most` operators, 0: all.
std::string to_text(const Analysis& analysis, size_t most = 30, size_t width = 0);
Json to_json(const Analysis& analysis);
/// A self-contained page.
std::string to_html(const Analysis& analysis);

}  // namespace npu_train
