#include "testing.hpp"

#include "npu_train/train/failed_window.hpp"

using namespace npu_train;

TEST_CASE("the work that ran out of memory in the words of a message") {
  CHECK(std::string(work_name(Phase::Transfer)) == "copy to the device");
  CHECK(std::string(work_name(Phase::Forward)) == "forward");
  CHECK(std::string(work_name(Phase::Backward)) == "backward");
}
