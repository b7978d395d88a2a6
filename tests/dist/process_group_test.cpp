#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include "npu_train/dist/process_group.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("one process is a group for which everything is the identity") {
  const auto group = single_process();
  CHECK(group->rank() == 0);
  CHECK(group->world_size() == 1);
  CHECK(group->is_main());
  auto t = at::rand({5});
  const auto before = t.clone();
  group->all_reduce_sum(t);
  group->all_reduce_max(t);
  group->broadcast(t, 0);
  group->barrier();
  CHECK(at::equal(t, before));
  CHECK(group->all_reduce_sum(2.5) == 2.5);
  CHECK(error_of([&] { group->broadcast(t, 1); }).kind() == ErrorKind::Usage);
}
