#include "testing.hpp"

#include "npu_train/base/storage.hpp"

#include <ATen/ops/ones.h>

using namespace npu_train;

TEST_CASE("a tensor and its views have one storage, copies their own") {
  const auto t = at::ones({2, 3});
  CHECK(storage_of(t) != nullptr);
  CHECK(storage_of(t) == storage_of(t.t()));
  CHECK(storage_of(t) == storage_of(t[1].detach()));
  CHECK(storage_of(t) == storage_of(t.expand({4, 2, 3})));
  CHECK(storage_of(t) != storage_of(t.clone()));
}

TEST_CASE("what has no memory of its own has no storage") {
  CHECK(storage_of(at::Tensor()) == nullptr);
  CHECK(storage_of(at::ones({2, 2}).to_sparse()) == nullptr);
}
