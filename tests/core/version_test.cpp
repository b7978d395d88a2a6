#include "testing.hpp"

#include "npu_train/core/version.hpp"

TEST_CASE("the version's text is its numbers") {
  CHECK(std::string(NPU_TRAIN_VERSION) == std::to_string(NPU_TRAIN_VERSION_MAJOR) + "." + std::to_string(NPU_TRAIN_VERSION_MINOR) + "." +
                                              std::to_string(NPU_TRAIN_VERSION_PATCH));
}
