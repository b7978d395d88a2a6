// Replaces c10d_group.cpp and store_server.cpp for a libtorch without c10d (NPU_TRAIN_DIST=OFF).
#include "npu_train/core/error.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/store_server.hpp"

namespace npu_train {
namespace {

[[noreturn]] void missing(const char* where) {
  throw Error(ErrorKind::Device, where, "this build trains in one process: it was configured with NPU_TRAIN_DIST=OFF",
              "build npu_train with -DNPU_TRAIN_DIST=ON and a libtorch that contains c10d");
}

}  // namespace

std::shared_ptr<ProcessGroup> make_process_group(const Launch& /*launch*/, const DistOptions& /*options*/,
                                                 std::function<bool()> /*stopped*/) {
  missing("process group");
}

void serve_store(int /*listen_fd*/) { missing("serve_store"); }

}  // namespace npu_train
