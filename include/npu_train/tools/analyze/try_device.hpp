/// Tests a model on a device step by step, as a person would on the first day of a migration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train {

class Task;
class Batch;

/// One line of the trial.
struct Trial {
  std::string name;  ///< loaded | moved | forward | loss | backward | training | speed | outputs
  enum class Verdict { Passed, Note, Failed, NotReached, NotJudged } verdict = Verdict::NotReached;
  double seconds = 0;
  std::string detail;   ///< the observation
  std::string error{};  ///< the message if the trial ended with an exception; "" otherwise
};

struct TrialReport {
  std::string device;
  std::vector<Trial> trials;
  /// The kind of the failure, "" if there was none: operator | dtype | shape | out_of_memory | environment | numbers | model.
  std::string failure;
  std::string place;      ///< the operator and its layer, if known
  std::string remedy;     ///< the remedy
  double max_error = -1;  ///< of the outputs: the largest difference from the CPU's, divided by the largest output; -1: not reached
  double speed_up = -1;   ///< time of a step on the CPU divided by that on the device; -1: not reached, or the device is this CPU

  bool passed() const { return failure.empty(); }
};

struct TrialOptions {
  int64_t epochs = 3;           ///< short ones
  int64_t steps_per_epoch = 4;  ///< on the same batch
  double lr = 1e-3;             ///< of plain SGD
  double passes_below = 1e-4;   ///< error of the outputs in fp32
  double noted_below = 1e-3;    ///< passes, with a note; above it fails
};

/// Runs `task` in fp32 on the CPU and then on `device` ("npu", "cuda:1", "sim_npu"): forward in evaluation mode, loss, backward, three
/// short epochs with plain SGD, speed, outputs. A trial fails with an exception, and also if parameters were not moved, values are not
/// finite, gradients are missing that exist on the CPU, or no parameter changes; tensors that the model copies back to the host are a note.
/// Speed is not judged on "cpu" and "sim_npu", which compute on this processor. A failure is described in the report, and later trials are
/// not reached. The task is returned to the CPU with its original weights. Error(Usage) for a task that does not run on the CPU itself, and
/// for a name that is not a device; Error(Device) if the device fails before the task is back.
TrialReport try_device(Task& task, const Batch& batch, const std::string& device, const TrialOptions& options = {});

/// One line for each trial, and the remedy.
std::string to_text(const TrialReport& report, size_t width = 0);
Json to_json(const TrialReport& report);

}  // namespace npu_train
