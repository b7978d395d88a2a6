#include "engine/build_memory.hpp"

#include "npu_train/core/host.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {

BuildMemory::BuildMemory(bool may_shard_parameters, const std::string& output_dir) {
  if (!may_shard_parameters) return;
  folder_ = FileBackedMemory::temporary_folder(output_dir);
  if (folder_.empty())
    log_info("no folder for temporary files is on a disk, so the model must fit into memory until it is divided; hint: set TMPDIR");
  else
    files_ = std::make_unique<FileBackedMemory>(folder_, free_host_bytes() / 2);
}

void BuildMemory::end() {
  if (files_ != nullptr) taken_ = files_->taken();
  files_.reset();
}

void BuildMemory::report() const {
  if (taken_ == 0) return;
  const auto left = FileBackedMemory::in_use();
  log_info("the model was made with ", human_bytes(static_cast<double>(taken_)), " of files in ", folder_, " on each rank",
           left == 0 ? std::string() : "; what is in no shard stays there, " + human_bytes(static_cast<double>(left)));
}

}  // namespace npu_train
