/// Tests a model on a device step by step, as a person would on the first day of a migration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/tools/report/report.hpp"

namespace npu_train {

class Task;
class Batch;

/// One step of the test.
struct Trial {
  std::string name;  ///< loaded | moved | forward | loss | backward | training | speed | outputs
  enum class Verdict { Passed, Note, Failed, NotReached, NotJudged } verdict = Verdict::NotReached;
  double seconds = 0;
  std::string detail;   ///< the observation
  std::string error{};  ///< message of the exception that ended the trial; "" otherwise
};

struct TrialReport {
  std::string device;
  std::vector<Trial> trials;
  /// The kind of the failure: operator | dtype | shape | out_of_memory | environment | numbers | model; "": none.
  std::string failure;
  std::string place;      ///< the failed operator and its layer, if known
  std::string remedy;     ///< the recommended action
  double max_error = -1;  ///< largest difference of the outputs from the CPU's, divided by the largest output; -1: not reached
  double speed_up = -1;   ///< time of a step on the CPU divided by the time on the device; -1: not reached, or the device is this CPU

  bool passed() const { return failure.empty(); }
};

struct TrialOptions {
  int64_t epochs = 3;           ///< number of short epochs
  int64_t steps_per_epoch = 4;  ///< steps in an epoch, all on the same batch
  double lr = 1e-3;             ///< learning rate of plain SGD
  double passes_below = 1e-4;   ///< limit of the outputs' error in fp32
  double noted_below = 1e-3;    ///< larger errors up to this limit pass with a note; above it, the trial fails
};

/// Runs `task` in fp32 on the CPU and then on `device` ("npu", "cuda:1", "sim_npu"): forward in evaluation mode, loss, backward, three
/// short epochs with plain SGD, speed, outputs. A trial fails if an exception is thrown, parameters were not moved, values are not finite,
/// a parameter has no gradient although it has one on the CPU, or no parameter changes. If the model copies tensors back to the host, the
/// trial passes with a note. Speed is not judged on "cpu" and "sim_npu", which compute on this processor. The report describes a failure;
/// later trials are not reached. Finally, the task is moved back to the CPU with its original weights. Error(Usage) if the task does not
/// run on the CPU, or if `device` is not the name of a device; Error(Device) if the device fails before the task is back on the CPU.
TrialReport try_device(Task& task, const Batch& batch, const std::string& device, const TrialOptions& options = {});

/// Returns one line per trial, and the remedy.
Report report_of(const TrialReport& report);

}  // namespace npu_train
