// A training of a few seconds, for the tests of tools around a training.
#pragma once

#include <string>

#include "npu_train/engine/run_config.hpp"

namespace npu_train::testing {

/// Returns a run of 12 steps: a transformer of one block on generated images, with a validation, on the CPU and without files.
inline RunConfig short_run(const std::string& precision = "32-true") {
  RunConfig c{.device = "cpu", .precision = precision};
  c.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  c.data = {.name = "generated", .options = {{"train_size", 96}, {"val_size", 16}, {"batch_size", 8}, {"num_workers", "0"}}};
  c.trainer = {.max_epochs = 1, .threads = 1};
  c.output.dir = "";
  return c;
}

}  // namespace npu_train::testing
