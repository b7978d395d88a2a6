// The memory in which a model is made that several ranks divide among them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "npu_train/core/file_backed_memory.hpp"

namespace npu_train {

// With parameters in shards a rank keeps a part of a model that it needs complete only until setup() has divided it. From construction to
// end() large tensors of this thread that would take more than half of the host's free memory are in files instead: in the folder for
// temporary files, in /var/tmp or in `output_dir`, the first of them that is on a disk. Does nothing where parameters stay complete.
class BuildMemory {
 public:
  BuildMemory(bool may_shard_parameters, const std::string& output_dir);

  // Before Strategy::setup(): shards are in ordinary memory.
  void end();
  // After it: how much was in files, and how much still is.
  void report() const;

 private:
  std::unique_ptr<FileBackedMemory> files_;
  std::string folder_;
  size_t taken_ = 0;
};

}  // namespace npu_train
