#include "npu_train/kernels/running_updates.hpp"

#include "testing.hpp"

#include <ATen/ops/full.h>

using namespace npu_train::testing;
using npu_train::detail::move_running;
using npu_train::detail::RunningUpdates;

TEST_CASE("a move is computed in fp64 and rounded once, and counts as a change") {
  const auto running = at::full({2}, 0.1F);
  const auto version = running._version();
  move_running(running, 0.9, {1e-9, 7.0});
  CHECK(running[0].item<float>() == static_cast<float>(0.9 * static_cast<double>(0.1F) + 1e-9));
  CHECK(running[1].item<float>() == static_cast<float>(0.9 * static_cast<double>(0.1F) + 7.0));
  CHECK(running._version() == version + 1);
}

TEST_CASE("the innermost collector of the thread is the current one") {
  CHECK(RunningUpdates::current() == nullptr);
  RunningUpdates outer;
  {
    RunningUpdates inner;
    CHECK(RunningUpdates::current() == &inner);
  }
  CHECK(RunningUpdates::current() == &outer);
}
