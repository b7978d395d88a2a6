/// Finds the parts of a model that will not run, or not run well, on an Ascend NPU. Needs no NPU: one training step runs on this machine,
/// and the operators that it dispatches are looked up in tables (device/operator_support.hpp). The tables are facts about versions, not
/// tests on a chip.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/device/operator_support.hpp"
#include "npu_train/tools/analyze/operator_inventory.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

class Task;
class Batch;

struct AnalysisOptions {
  std::string soc = "910B1";   ///< the chip as named by CANN or npu-smi, its series ("910B"), or a card (see AscendOperators)
  std::string torch = "2.11";  ///< version of torch_npu: 2.11 to 2.13
  int64_t hbm = 0;             ///< bytes of one NPU; 0: no verdict on memory
  int64_t predicted_peak = 0;  ///< predicted bytes of the training; 0: not predicted
  std::string fits_with{};     ///< if predicted_peak exceeds `hbm`: overrides with which the training would fit; "": none known
  std::string sharded_with{};  ///< like `fits_with` for ranks that shard the training: "trainer.strategy=zero2 on 8 ranks"; "": none known
};

/// A finding of the analysis.
struct MigrationFinding {
  std::string kind;      ///< unsupported | custom | many_custom | cpu_fallback | limited | unknown | dtype | dynamic_shape | host_read |
                         ///< fp64 | int64 | alignment | parameter_dtypes | bf16 | fp16_accumulation | atomics | memory | memory_change |
                         ///< memory_sharding | series | composite
  std::string severity;  ///< blocks | change | check | note
  std::string subject;   ///< the operator, layer or parameter
  std::string detail;    ///< the observation
  std::string advice;    ///< the recommended action
  std::string done_by;   ///< automatic (torch_npu does it) | tool (a command or an option of npu_train) | hand
  int64_t calls = 0;     ///< number of calls of an operator in one step, in all phases
  std::vector<std::string> places{};  ///< phases and the first few layers of an operator ("forward in layer1.0")
  double hours = 0;                   ///< estimated hours of work (order of magnitude), from src/tools/analyze/facts/advice.tsv
};

struct Analysis {
  struct Operator {
    OperatorUse use;
    OperatorFacts facts;
  };
  AnalysisOptions options;
  std::vector<Operator> operators;                                ///< sorted by time, longest first
  std::vector<MigrationFinding> findings;                         ///< sorted by severity, worst first
  std::vector<std::pair<std::string, int64_t>> parameter_dtypes;  ///< dtype ("fp32") and number of tensors
  std::vector<std::string> notes;                                 ///< differences between the analysed step and the one on the chip
  double seconds = 0;                                             ///< time of all operators

  /// Returns the hours of all findings.
  double hours() const;
  /// Returns ready | feasible | blocked.
  std::string verdict() const;
};

/// Looks up the operators of an inventory in the tables, and returns the findings.
Analysis analyze(const OperatorInventory& inventory, const ParameterSet& parameters, const AnalysisOptions& options = {});
/// Runs a forward and backward pass of `task` on one batch, in training mode and fp32, and looks up the dispatched operators. Drops the
/// gradients; running statistics change. Errors of the model are rethrown.
Analysis analyze(Task& task, const Batch& batch, const AnalysisOptions& options = {});

Report report_of(const Analysis& analysis);

/// Returns a table of the operators that the chip does not support as they are (unsupported, custom, cpu_fallback, unknown): operator,
/// support, count (calls in one step), where, action, done_by, hours. This is the content of unsupported_operators.csv.
std::string unsupported_csv(const Analysis& analysis);

}  // namespace npu_train
