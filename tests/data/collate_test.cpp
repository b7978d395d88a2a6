#include "testing.hpp"

#include "npu_train/data/collate.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>

#include "npu_train/data/datasets.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/loader.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Sample i has i % 4 boxes, and a label for each.
struct BoxSet final : Dataset {
  int64_t size() const override { return 10; }
  Sample get(int64_t index) const override {
    const auto n = index % 4;
    return {{{"input", at::full({3, 2, 2}, static_cast<double>(index))},
             {"boxes", at::arange(4 * n, at::kFloat).reshape({n, 4}).add(100 * index)},
             {"labels", at::full({n}, index, at::kLong)}},
            index};
  }
};

std::vector<Sample> box_samples() {
  std::vector<Sample> out;
  for (int64_t i = 0; i < 4; ++i) out.push_back(BoxSet().get(i));
  return out;
}

std::vector<at::Tensor> field(const std::vector<Sample>& samples, size_t at) {
  std::vector<at::Tensor> out;
  for (const auto& sample : samples) out.push_back(sample.fields[at].second);
  return out;
}

LoaderOptions with_collate(Collate collate, int64_t workers = 2) {
  return {.batch_size = 4, .num_workers = workers, .seed = 1, .collate = std::move(collate)};
}

}  // namespace

TEST_CASE("stack is at::stack of each field") {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < 3; ++i) samples.push_back({{{"a", at::full({2, 3}, i).t()}, {"b", at::scalar_tensor(i, at::kLong)}}, i});
  const auto batch = stack(samples);
  CHECK(batch.at("a").equal(at::stack(field(samples, 0))));
  CHECK(batch.at("b").equal(at::stack(field(samples, 1))));
  CHECK((batch.at("b").scalar_type() == at::kLong));
  CHECK(error_of([] { stack({}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("pad is pad_sequence of libtorch for each named field, with a mask of its elements") {
  const auto samples = box_samples();
  const auto batch = pad_and_stack(samples, {.fields = {"boxes", "labels"}, .value = -1});
  CHECK(batch.at("boxes").equal(at::pad_sequence(field(samples, 1), /*batch_first=*/true, -1)));
  CHECK(batch.at("labels").equal(at::pad_sequence(field(samples, 2), true, -1)));
  CHECK((batch.at("labels").scalar_type() == at::kLong));
  CHECK(batch.input().equal(at::stack(field(samples, 0))));
  const auto mask = batch.at("boxes_mask");
  CHECK((mask.scalar_type() == at::kLong));
  CHECK(mask.sizes() == at::IntArrayRef({4, 3}));
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(mask[i].sum().item<int64_t>() == i);
    if (i > 0) CHECK(mask[i][i - 1].item<int64_t>() == 1);
  }
  CHECK(batch.at("labels_mask").equal(mask));
}

TEST_CASE("lengths: a multiple, a fixed one, and one element at least") {
  const auto length = [](std::vector<Sample> samples, PadOptions options) {
    options.fields = {"boxes"};
    for (auto& sample : samples) sample.fields.resize(2);
    return pad_and_stack(std::move(samples), options).at("boxes").size(1);
  };
  CHECK(length(box_samples(), {}) == 3);
  CHECK(length(box_samples(), {.multiple_of = 8}) == 8);
  CHECK(length(box_samples(), {.length = 5}) == 5);
  CHECK(length(box_samples(), {.length = 5, .multiple_of = 4}) == 8);
  CHECK(length({BoxSet().get(0), BoxSet().get(4)}, {}) == 1);
  const auto error = error_of([&] { length(box_samples(), {.length = 2}); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "'boxes' has 3 elements"));
}

TEST_CASE("what cannot be padded is reported with the sample and the field") {
  const auto refused = [](std::vector<Sample> samples, const PadOptions& options) {
    return std::string(error_of([&] { pad_and_stack(std::move(samples), options); }).what());
  };
  CHECK(has(refused(box_samples(), {}), "data.collate.fields"));
  CHECK(has(refused(box_samples(), {.fields = {"boxs"}}), "sample 0 has no field 'boxs'"));
  CHECK(has(refused(box_samples(), {.fields = {"labels"}, .value = 0.5}), "data.collate.value"));
  CHECK(has(refused(box_samples(), {.fields = {"labels"}, .multiple_of = 0}), "data.collate.multiple_of"));
  CHECK(has(refused(box_samples(), {.fields = {"boxes", "boxes"}}), "already have a field 'boxes_mask'"));
  auto other = box_samples();
  other[2].fields[1].second = at::zeros({2, 5});
  CHECK(has(refused(other, {.fields = {"boxes"}}), "'boxes' of sample 2 is Float [2, 5]"));
  CHECK(has(refused(box_samples(), {.fields = {"boxes"}}), "data.collate: {name: pad"));   // labels still differ
  CHECK(has(refused(box_samples(), {.fields = {"labels"}}), "pads the first dimension"));  // and so do boxes
}

TEST_CASE("a loader calls the collate in its workers, and sets what a batch has besides its tensors") {
  for (const int64_t workers : {0, 3}) {
    const PadOptions pad{.fields = {"boxes", "labels"}};
    auto options = with_collate([pad](std::vector<Sample> samples) { return pad_and_stack(std::move(samples), pad); }, workers);
    Loader loader(std::make_shared<BoxSet>(), {}, options);
    loader.begin_epoch(0);
    const Batch first = *loader.next();
    CHECK(first.ids == std::vector<int64_t>{0, 1, 2, 3});
    CHECK(first.size == 4);
    CHECK(first.weight == 4);
    CHECK(first.at("boxes").sizes() == at::IntArrayRef({4, 3, 4}));
    loader.next();
    const Batch last = *loader.next();
    CHECK(last.size == 2);
    CHECK(last.at("boxes").sizes() == at::IntArrayRef({2, 1, 4}));

    options.last_batch = LastBatch::Pad;
    Loader padded(std::make_shared<BoxSet>(), {}, options);
    padded.begin_epoch(0);
    Batch batch;
    while (auto next = padded.next()) batch = *next;
    CHECK(batch.size == 2);
    CHECK(batch.at("boxes").size(0) == 4);
    CHECK(batch.at("boxes")[2].equal(batch.at("boxes")[0]));
    CHECK(batch.at("boxes_mask")[3].equal(batch.at("boxes_mask")[1]));
    CHECK(batch.at("mask").sum().item<float>() == 2);
  }
}

TEST_CASE("a collate of one's own packs samples into one row; its faults are errors by name") {
  const auto packed = [](std::vector<Sample> samples) {
    std::vector<at::Tensor> labels;
    std::vector<int64_t> ends;
    int64_t end = 0;
    for (const auto& sample : samples) {
      labels.push_back(sample.fields[2].second);
      ends.push_back(end += labels.back().size(0));
    }
    Batch out;
    out.set("input", at::cat(labels));
    auto places = at::zeros({static_cast<int64_t>(ends.size())}, at::kLong);
    std::copy(ends.begin(), ends.end(), places.mutable_data_ptr<int64_t>());
    out.set("ends", places);
    return out;
  };
  Loader loader(std::make_shared<BoxSet>(), {}, with_collate(packed));
  loader.begin_epoch(0);
  const Batch batch = *loader.next();
  CHECK(batch.input().sizes() == at::IntArrayRef({6}));
  CHECK(batch.at("ends")[3].item<int64_t>() == 6);
  CHECK(batch.size == 4);  // samples

  Loader faulty(std::make_shared<BoxSet>(), {},
                with_collate([](std::vector<Sample>) -> Batch { throw std::runtime_error("no such box"); }));
  faulty.begin_epoch(0);
  const auto error = error_of([&] { faulty.next(); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "no such box"));

  Loader empty(std::make_shared<BoxSet>(), {}, with_collate([](std::vector<Sample>) { return Batch(); }));
  empty.begin_epoch(0);
  CHECK(has(error_of([&] { empty.next(); }).what(), "without tensors"));
}

TEST_CASE("a collate gets the unpadded samples of a SequenceDataset; images are not collated") {
  struct Texts final : SequenceDataset {
    int64_t size() const override { return 4; }
    Sample get(int64_t index) const override { return {{{"input", at::ones({index + 1}, at::kLong)}}, index}; }
    int64_t padding() const override { return 9; }
    int64_t longest() const override { return 4; }
  };
  const PadOptions pad{.fields = {"input"}, .value = 7, .multiple_of = 8};
  Loader loader(std::make_shared<Texts>(), {},
                with_collate([pad](std::vector<Sample> samples) { return pad_and_stack(std::move(samples), pad); }));
  loader.begin_epoch(0);
  const Batch batch = *loader.next();
  CHECK(batch.input().sizes() == at::IntArrayRef({4, 8}));
  CHECK(batch.input()[0][1].item<int64_t>() == 7);
  CHECK_FALSE(batch.has("attention_mask"));
  Loader plain(std::make_shared<Texts>(), {}, with_collate({}));
  plain.begin_epoch(0);
  const Batch texts = *plain.next();
  CHECK(texts.input()[0][1].item<int64_t>() == 9);
  CHECK(texts.at("attention_mask").sum().item<int64_t>() == 1 + 2 + 3 + 4);

  DatasetRegistry datasets = builtin_datasets();
  auto images = datasets.make({.name = "generated", .options = {{"train_size", 8}, {"val_size", 4}, {"batch_size", 4}}}, "data",
                              builtin_transforms());
  images.options.collate = part("stack");
  CollateRegistry collates("collate");
  add_builtin_collates(collates);
  set_collate(images, collates);
  const auto error = error_of([&] { train_loader(images, {}); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "data.collate"));
}

TEST_CASE("collates by name, with options") {
  CollateRegistry registry("collate");
  add_builtin_collates(registry);
  CHECK(registry.names() == std::vector<std::string>{"pad", "stack"});
  registry.add<NoOptions>("first", "only the first sample", [](const NoOptions&) -> Collate {
    return [](std::vector<Sample> samples) {
      samples.resize(1);
      return stack(samples);
    };
  });
  DatasetPair pair;
  pair.train = std::make_shared<BoxSet>();
  pair.options.batch_size = 4;
  pair.options.num_workers = "0";
  pair.options.shuffle = false;
  const auto first_batch = [&](PartConfig collate) {
    pair.options.collate = std::move(collate);
    set_collate(pair, registry);
    auto loader = train_loader(pair, {});
    loader.begin_epoch(0);
    return *loader.next();
  };
  CHECK(first_batch(part("first")).at("boxes").sizes() == at::IntArrayRef({1, 0, 4}));
  const auto fields = ConfigNode::list({"boxes", "labels"});
  CHECK(first_batch(part("pad", {{"fields", fields}, {"multiple_of", 4}})).at("labels").sizes() == at::IntArrayRef({4, 4}));
  CHECK(has(error_of([&] { first_batch(part("pad")); }).what(), "data.collate.fields"));
  CHECK(has(error_of([&] { first_batch(part("pda")); }).what(), "did you mean 'pad'?"));
}
