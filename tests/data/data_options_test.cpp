#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_dataset.hpp"

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

TEST_CASE("the common keys bind together with a data set's own keys") {
  const auto options = bind<Cifar10Options>(
      parse_yaml("root: there\nbatch_size: 64\nnum_workers: 3\ndrop_last: true\ntrain_transforms: [horizontal_flip, {name: normalize}]",
                 "t"),
      "data");
  CHECK(options.root == "there");
  CHECK(options.batch_size == 64);
  CHECK(options.num_workers == "3");
  CHECK(options.drop_last);
  REQUIRE(options.train_transforms.size() == 2);
  CHECK(options.train_transforms[0].name == "horizontal_flip");
  CHECK(options.val_transforms.size() == 2);
  CHECK(bind<Cifar100Options>(parse_yaml("{}", "t")).root == "data/cifar-100-binary");
}

TEST_CASE("errors are named") {
  CHECK(error_of([] { bind<Cifar10Options>(parse_yaml("batch_size: 0", "t")); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { bind<Cifar10Options>(parse_yaml("train_transforms: horizontal_flip", "t")); }).kind() == ErrorKind::Usage);
  const Error unknown = error_of([] { bind<ImageFolderOptions>(parse_yaml("batchsize: 4", "t")); });
  CHECK(std::string(unknown.what()).find("batch_size") != std::string::npos);
  const Error synonym = error_of([] { bind<ImageFolderOptions>(parse_yaml("workers: 4", "t")); });
  CHECK(std::string(synonym.what()).find("num_workers") != std::string::npos);
}

TEST_CASE("defaults survive being written and read") {
  const ImageFolderOptions defaults;
  const auto back = bind<ImageFolderOptions>(parse_yaml(to_yaml(to_node(defaults)), "t"));
  CHECK(back.train_transforms.size() == defaults.train_transforms.size());
  CHECK(back.val_transforms[0].name == "resize");
  CHECK(back.image_size == 224);
}
