#include "npu_train/base/has_memory.hpp"

#include "testing.hpp"

#include <ATen/ops/ones.h>

using namespace npu_train;

TEST_CASE("has_memory(): tensors and views with values, and not those whose storage has only a size") {
  const auto tensor = at::ones({4});
  CHECK(has_memory(tensor));
  CHECK(has_memory(tensor.slice(0, 1, 2)));
  CHECK_FALSE(has_memory(at::Tensor()));
  auto* const storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap({nullptr, c10::Device(c10::kCPU)});
  CHECK(storage->nbytes() == 16);
  CHECK_FALSE(has_memory(tensor));
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_("an access is an error, but not this question");
  CHECK_FALSE(has_memory(tensor));
}
