#include "testing.hpp"

#include "npu_train/core/host_name.hpp"
#include "npu_train/core/process.hpp"

using namespace npu_train;

TEST_CASE("the name of the machine is that of uname") {
  const auto uname = run_command({"uname", "-n"});
  REQUIRE(uname.ok());
  CHECK(host_name() + "\n" == uname.output);
}
