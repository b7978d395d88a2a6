#include "testing.hpp"

#include "npu_train/core/command_line.hpp"

using namespace npu_train;
using npu_train::testing::has;

TEST_CASE("the command of this process: its program first, then its words") {
  const auto command = command_line();
  CHECK(has(command.substr(0, command.find(' ')), "test_core"));
}
