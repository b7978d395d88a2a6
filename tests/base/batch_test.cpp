#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/error.hpp"

using namespace npu_train;

using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("the usual batch counts its samples") {
  const Batch batch(at::ones({4, 3, 2, 2}), at::zeros({4}, at::kLong));
  CHECK(batch.size == 4);
  CHECK(batch.weight == 4.0);
  CHECK(batch.input().dim() == 4);
  CHECK((batch.target().scalar_type() == at::kLong));
  CHECK(batch.nbytes() == 4 * 12 * 4 + 4 * 8);
  CHECK_FALSE(Batch(at::ones({4}), {}).has("target"));  // a batch for prediction has no target
  CHECK_THROWS_AS(Batch(at::Tensor(), {}), Error);
  CHECK_THROWS_AS(Batch(at::ones({}), {}), Error);
}

TEST_CASE("fields by name") {
  Batch batch(at::ones({2}), at::ones({2}));
  batch.set("mask", at::ones({2}));
  batch.set("mask", at::zeros({2}));
  CHECK(batch.fields().size() == 3);
  CHECK(batch.at("mask").sum().item<float>() == 0);
  batch.erase("mask");
  batch.erase("mask");
  const auto e = error_of([&] { batch.at("inputs"); });
  CHECK(std::string(e.what()).find("did you mean 'input'?; available: input, target") != std::string::npos);
  CHECK_THROWS_AS(batch.set("", at::ones({1})), Error);
  CHECK_THROWS_AS(batch.set("x", at::Tensor()), Error);
}

TEST_CASE("map changes every tensor and keeps the rest") {
  Batch batch(at::ones({2}), at::ones({2}));
  batch.ids = {7, 8};
  batch.epoch = 3;
  batch.index = 5;
  batch.weight = 1.5;
  const auto twice = batch.map([](const at::Tensor& t) { return t * 2; });
  CHECK(twice.input().sum().item<float>() == 4);
  CHECK(twice.target().sum().item<float>() == 4);
  CHECK(batch.input().sum().item<float>() == 2);
  CHECK(twice.ids == batch.ids);
  CHECK(twice.epoch == 3);
  CHECK(twice.index == 5);
  CHECK(twice.weight == 1.5);
}

TEST_CASE("rows of a batch, with those that are padding") {
  Batch batch(at::arange(14, at::kFloat).reshape({7, 2}), at::arange(7));
  batch.set("scale", at::ones({}));
  batch.set("mask", at::ones({7}));
  batch.ids = {10, 11, 12, 13, 14};
  batch.size = 5;
  batch.weight = 10;
  CHECK(batch.rows() == 7);
  const auto middle = batch.narrow(3, 3);
  CHECK(middle.rows() == 3);
  CHECK(middle.size == 2);
  CHECK(middle.weight == 4);
  CHECK(middle.ids == std::vector<int64_t>{13, 14});
  CHECK(middle.target()[0].item<int64_t>() == 3);
  CHECK(middle.at("scale").dim() == 0);
  CHECK(middle.at("mask").size(0) == 3);
  CHECK(middle.input().data_ptr() == batch.input()[3].data_ptr());  // shares the memory
  CHECK(batch.narrow(6, 1).size == 0);
  CHECK(error_of([&] { batch.narrow(5, 3); }).kind() == ErrorKind::Usage);
}

TEST_CASE("what is pending is done in order, once, and before rows are taken") {
  Batch batch(at::ones({4}), at::zeros({4}));
  batch.pending = {[](Batch b) {
                     b.set("input", b.input() + 1);
                     return b;
                   },
                   [](Batch b) {
                     b.set("input", b.input().cumsum(0));
                     return b;
                   }};
  const auto done = batch.map([](const at::Tensor& t) { return t * 3; }).finished();
  CHECK(done.pending.empty());
  CHECK(done.input()[3].item<float>() == 16);
  CHECK(done.finished().input().is_same(done.input()));
  CHECK(batch.input().sum().item<float>() == 4);
  const auto last = batch.narrow(3, 1);  // the sums were computed on the complete batch before this row was taken
  CHECK(last.pending.empty());
  CHECK(last.input().item<float>() == 8);
}

TEST_CASE("outputs by name, in their order") {
  const Outputs none;
  CHECK_FALSE(none.first().defined());
  const Outputs one = at::ones({2});
  CHECK(one.fields().size() == 1);
  CHECK(one.at("output").numel() == 2);
  const Outputs two({{"boxes", at::zeros({4})}, {"scores", at::ones({1})}});
  CHECK(two.first().numel() == 4);
  CHECK(two.has("scores"));
  CHECK_FALSE(two.has("output"));
  const auto e = error_of([&] { (void)two.at("score"); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "no output 'score'; it has: boxes, scores"));
}
