#include "testing.hpp"

#include "npu_train/data/context_warmup.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("lengths grow linearly in multiples of 8 and end at the complete samples") {
  const ContextWarmup warmup{.from = 16, .steps = 10};
  std::vector<int64_t> lengths;
  for (int64_t step = 0; step <= 11; ++step) lengths.push_back(warmup_length(warmup, 61, step));
  CHECK(lengths == std::vector<int64_t>{16, 16, 24, 24, 32, 32, 40, 40, 48, 56, 61, 61});
  CHECK(warmup_length({.from = 16, .steps = 1}, 61, 0) == 16);
  for (const auto& [from, context] : std::vector<std::pair<int64_t, int64_t>>{{7, 61}, {61, 61}, {64, 61}}) {
    const auto error = error_of([&, from = from, context = context] { warmup_length({.from = from, .steps = 10}, context, 0); });
    CHECK((error.kind() == ErrorKind::Usage));
    CHECK_MESSAGE(std::string(error.what()).find("allowed: 8 to 60") != std::string::npos, error.what());
  }
}

TEST_CASE("a batch keeps the first tokens of its sequences, and all other fields") {
  Batch batch(at::arange(12, at::kLong).view({2, 6}), at::arange(12, at::kLong).view({2, 6}) + 1);
  batch.set("attention_mask", at::ones({2, 6}, at::kLong));
  batch.set("mask", at::ones({2}));
  batch.set("features", at::zeros({2, 6}));
  batch.index = 3;
  const auto cut = first_tokens(batch, 4);
  CHECK(at::equal(cut.input(), batch.input().narrow(1, 0, 4)));
  CHECK(at::equal(cut.target(), batch.target().narrow(1, 0, 4)));
  CHECK((cut.at("attention_mask").sizes() == at::IntArrayRef({2, 4})));
  CHECK((cut.at("features").sizes() == at::IntArrayRef({2, 6})));
  CHECK(cut.at("mask").numel() == 2);
  CHECK(cut.size == 2);
  CHECK(cut.index == 3);
  CHECK(first_tokens(batch, 6).input().is_same(batch.input()));
  CHECK((error_of([] { first_tokens(Batch(at::zeros({2, 3, 4, 4}), at::zeros({2})), 2); }).kind() == ErrorKind::Usage));
}
