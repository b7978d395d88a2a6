#include "testing.hpp"

#include "npu_train/core/error.hpp"

#include <c10/util/Exception.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <new>
#include <system_error>

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("a message says where, what and what to do; the kind is the exit code") {
  const Error e(ErrorKind::Data, "CifarDataset", "data_batch_1.bin: 12 bytes", "download it again");
  CHECK(std::string(e.what()) == "[CifarDataset] data_batch_1.bin: 12 bytes; hint: download it again");
  CHECK(e.exit_code() == 3);
  CHECK(e.where() == "CifarDataset");
  CHECK(e.cause() == nullptr);
}

TEST_CASE("check builds its message only when it fails") {
  check(true, ErrorKind::Usage, "here", "never");
  const auto e = error_of([] { check(false, ErrorKind::Usage, "Loader", "batch_size is ", 0, "; at least ", 1); });
  CHECK(std::string(e.what()) == "[Loader] batch_size is 0; at least 1");
}

TEST_CASE("what others throw becomes an Error of the right kind with its cause") {
  struct Row {
    const char* name;
    std::function<void()> thrower;
    ErrorKind kind;
    const char* text;
  };
  const std::vector<Row> rows = {
      {"c10 shape", [] { TORCH_CHECK(false, "mat1 and mat2 shapes cannot be multiplied"); }, ErrorKind::Usage, "cannot be multiplied"},
      {"c10 dtypes", [] { TORCH_CHECK(false, "Input type (double) and bias type (float) should be the same"); }, ErrorKind::Usage,
       "hint: the inputs must have the dtype of the weights"},
      {"c10 one value", [] { TORCH_CHECK(false, "Expected more than 1 value per channel when training, got input size [1, 4]"); },
       ErrorKind::Usage, "data.drop_last=true omits a last batch of one sample"},
      {"c10 memory", [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2 GiB"); },
       ErrorKind::OutOfMemory, "2 GiB"},
      {"c10 memory by its type", [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no room for 2 GiB"); }, ErrorKind::OutOfMemory, "2 GiB"},
      {"c10 peer by its base", [] { TORCH_CHECK_WITH(DistStoreError, false, "the store is gone"); }, ErrorKind::Peer, "first"},
      {"c10 host memory", [] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"); },
       ErrorKind::OutOfMemory, "99 bytes"},
      {"c10 internal", [] { TORCH_INTERNAL_ASSERT(false, "odd"); }, ErrorKind::Internal, "odd"},
      {"c10 not there", [] { TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run 'aten::x' with arguments from the 'CUDA' backend"); },
       ErrorKind::Device, "aten::x"},
      {"c10 npu", [] { TORCH_CHECK(false, "AclrtSynchronizeStream: NPU function error: call failed, error code is 507901"); },
       ErrorKind::Device, "npu_tool doctor --explain"},
      {"npu queue", [] { throw std::runtime_error("The Inner error is reported as above. ERR00100 PTA call acl api failed"); },
       ErrorKind::Device, "npu_tool doctor --explain"},
      {"c10 npu stream", [] { TORCH_CHECK(false, "ACL stream synchronize failed, error code:507015"); }, ErrorKind::Device,
       "that HCCL waits"},
      {"c10 npu operator", [] { TORCH_CHECK(false, "aclnnX or aclnnXGetWorkspaceSize not in libopapi.so, or libopapi.so not found."); },
       ErrorKind::Device, "hint: this CANN lacks the operator"},
      {"c10 device", [] { TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered"); }, ErrorKind::Device, "illegal"},
      {"bad_alloc", [] { throw std::bad_alloc(); }, ErrorKind::OutOfMemory, "memory"},
      {"full disk", [] { throw std::system_error(ENOSPC, std::generic_category(), "write"); }, ErrorKind::Checkpoint, "No space"},
      {"quota", [] { throw std::system_error(EDQUOT, std::system_category(), "write"); }, ErrorKind::Checkpoint, "quota"},
      {"read-only", [] { throw std::filesystem::filesystem_error("create", "/x", std::error_code(EROFS, std::generic_category())); },
       ErrorKind::Checkpoint, "/x"},
      {"no file", [] { static_cast<void>(std::filesystem::file_size("/no/such/file")); }, ErrorKind::Data, "/no/such/file"},
      {"threads", [] { throw std::system_error(EAGAIN, std::generic_category(), "thread"); }, ErrorKind::Device, "thread"},
      {"standard", [] { throw std::out_of_range("map::at"); }, ErrorKind::Internal, "map::at"},
      {"no exception", [] { throw 3; }, ErrorKind::Internal, "thrown"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const auto e = error_of([&] { translated("there", row.thrower); });
    CHECK(e.kind() == row.kind);
    CHECK(std::string(e.what()).find(row.text) != std::string::npos);
    CHECK(std::string(e.what()).find("Exception raised from") == std::string::npos);
    CHECK(e.where() == "there");
    CHECK(e.cause() != nullptr);
  }
}

TEST_CASE("what nothing is known about is the fault of the code that is called for, and only that") {
  const auto kind_of = [](const std::function<void()>& thrower) {
    return error_of([&] { translated("Callback", ErrorKind::Usage, thrower); }).kind();
  };
  CHECK(kind_of([] { throw std::runtime_error("mine"); }) == ErrorKind::Usage);
  CHECK(kind_of([] { throw 3; }) == ErrorKind::Usage);
  CHECK(kind_of([] { TORCH_INTERNAL_ASSERT(false, "odd"); }) == ErrorKind::Internal);
  CHECK(kind_of([] { throw std::bad_alloc(); }) == ErrorKind::OutOfMemory);
  CHECK(kind_of([] { throw Error(ErrorKind::Internal, "inner", "x"); }) == ErrorKind::Internal);
}

TEST_CASE("a message without its place") { CHECK(Error(ErrorKind::Data, "here", "x", "y").message() == "x; hint: y"); }

TEST_CASE("an Error passes unchanged and results come back") {
  const auto e = error_of([] { translated("outer", [] { throw Error(ErrorKind::Data, "inner", "x"); }); });
  CHECK(e.where() == "inner");
  CHECK(translated("here", [] { return 7; }) == 7);
  CHECK(translate_current_exception("nowhere").kind() == ErrorKind::Internal);
}
