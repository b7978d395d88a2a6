#include "testing.hpp"

#include <ATen/Parallel.h>

#include <stdexcept>

#include "npu_train/device/threads.hpp"

using namespace npu_train;

TEST_CASE("the number of threads is set for a scope and restored") {
  const int before = at::get_num_threads();
  {
    const ThreadCount one(1);
    CHECK(at::get_num_threads() == 1);
    const ThreadCount two(2);
    CHECK(at::get_num_threads() == 2);
  }
  CHECK(at::get_num_threads() == before);
  try {
    const ThreadCount three(3);
    throw std::runtime_error("on the way");
  } catch (const std::runtime_error&) {
  }
  CHECK(at::get_num_threads() == before);
}

TEST_CASE("zero leaves the number as it is") {
  const int before = at::get_num_threads();
  const ThreadCount none(0);
  CHECK(at::get_num_threads() == before);
}
