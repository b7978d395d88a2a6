#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "npu_train/device/backend.hpp"
#include "npu_train/device/transfer.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

Batch example() {
  Batch b(at::rand({4, 3}), at::zeros({4}, at::kLong));
  b.ids = {5, 6, 7, 8};
  b.weight = 2.5;
  b.epoch = 3;
  b.index = 9;
  return b;
}

}  // namespace

TEST_CASE("a batch that is there already is shared and keeps what it is") {
  const auto b = example();
  const auto moved = to_device(b, Device{});
  CHECK(moved.input().is_same(b.input()));
  CHECK(moved.target().is_same(b.target()));
  CHECK(moved.size == 4);
  CHECK(moved.weight == 2.5);
  CHECK(moved.ids == b.ids);
  CHECK(moved.epoch == 3);
  CHECK(moved.index == 9);
}

TEST_CASE("what is pending is done after the copy") {
  auto b = example();
  b.pending.emplace_back([](Batch there) {
    there.set("input", there.input() * 2);
    return there;
  });
  const auto moved = to_device(b, Device{});
  CHECK(moved.pending.empty());
  CHECK(at::equal(moved.input(), b.input() * 2));
  CHECK(pin(b).pending.size() == 1);
}

TEST_CASE("to every device present and back") {
  const auto b = example();
  for (const auto* backend : all_backends()) {
    const Device d{backend->name(), 0};
    if (!backend->is_available()) {
      if (d.kind == "cuda") CHECK(error_of([&] { to_device(b, d); }).kind() != ErrorKind::Internal);
      continue;
    }
    const auto there = to_device(b, d);
    CHECK(there.input().device() == d.c10());
    CHECK((there.target().scalar_type() == at::kLong));
    CHECK(at::equal(to_device(there, Device{}, false).input(), b.input()));
  }
}

TEST_CASE("pinning changes no value, and nothing at all without an accelerator") {
  const auto b = example();
  const auto pinned = pin(b);
  CHECK(at::equal(pinned.input(), b.input()));
  CHECK(pinned.size == 4);
  bool gains = false;
  for (const auto* backend : all_backends()) gains |= backend->is_available() && backend->capabilities({backend->name(), 0}).pinned_memory;
  CHECK(pinned.input().is_same(b.input()) == !gains);
}

TEST_CASE("numbers on their way to the host are those of when they were sent") {
  for (const auto* backend : all_backends()) {
    if (!backend->is_available()) continue;
    CAPTURE(backend->name());
    const auto d = Device{backend->name(), 0}.c10();
    const auto x = at::rand({2, 3}), y = at::rand({2, 3});
    auto there = x.to(d, at::kHalf, false, /*copy=*/true);
    const HostCopy copy(there);
    if (!d.is_cpu()) there.copy_(y);
    const auto host = copy.get();
    CHECK(host.device().is_cpu());
    CHECK((host.scalar_type() == at::kFloat));
    CHECK(host.is_contiguous());
    CHECK(at::equal(host, x.to(at::kHalf).to(at::kFloat)));
  }
  CHECK(HostCopy(at::ones({4}).expand({3, 4}).t()).get().is_contiguous());
}
