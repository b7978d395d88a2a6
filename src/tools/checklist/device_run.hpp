// Short runs on the target device. Several items of the checklist use their results.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train::detail {

struct DeviceRun {
  double waited = 0;  // share of the time in which steps waited for data
  int64_t steps = 0;
  int64_t batch = 0, accumulate = 1;  // samples of a micro-batch, micro-batches of an update
  bool can_pin = false;               // the device copies from page-locked memory
  bool pins = false;                  // the loader's batches are in page-locked memory

  int64_t effective_batch() const { return batch * accumulate; }
};

// Trains `steps` steps with the configuration's device and batches.
DeviceRun run_on_device(const RunConfig& config, const Parts& parts, int64_t steps);

// The result of continuing a device's checkpoint on the CPU.
struct WayBack {
  std::string precision;  // used on both devices
  bool same_weights = false;
  bool finite = false;  // all weights are finite after the steps on the CPU
};

// Trains `steps` steps with the configuration's device, writes a checkpoint to a temporary folder, loads it on the CPU, and trains as many
// steps there.
WayBack return_to_cpu(const RunConfig& config, const Parts& parts, int64_t steps);

}  // namespace npu_train::detail
