// Memory for building a model that several ranks will shard.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "npu_train/base/file_backed_memory.hpp"

namespace npu_train {

// Keeps the complete model out of the host's memory while it is built, if its parameters will be sharded: a rank needs the complete model
// only until setup() has divided it. From construction to end(), large tensors of this thread that would exceed half of the host's free
// memory are stored in files, in the first of these folders that is on a disk: the folder for temporary files, /var/tmp, `output_dir`. No
// effect if parameters are not sharded.
class BuildMemory {
 public:
  BuildMemory(bool may_shard_parameters, const std::string& output_dir);

  // Call it before Strategy::setup(), so that shards are in ordinary memory.
  void end();
  // Logs how many bytes were in files, and how many still are. Call it after setup().
  void report() const;

 private:
  std::unique_ptr<FileBackedMemory> files_;
  std::string folder_;
  size_t taken_ = 0;
};

}  // namespace npu_train
