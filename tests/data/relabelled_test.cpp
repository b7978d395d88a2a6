#include "testing.hpp"

#include "npu_train/data/relabelled.hpp"

#include <torch/torch.h>

#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using RelabelledNames = std::vector<std::string>;

DatasetInfo named_info(const RelabelledNames& names) {
  DatasetInfo out;
  out.class_names = names;
  out.num_classes = static_cast<int64_t>(names.size());
  out.shape = {1, 1, 1};
  return out;
}

std::shared_ptr<MemoryImages> named_images(const RelabelledNames& names) {
  std::vector<uint8_t> pixels(names.size());
  std::vector<int64_t> labels(names.size());
  for (size_t i = 0; i < names.size(); ++i) labels[i] = static_cast<int64_t>(i);
  return std::make_shared<MemoryImages>(std::move(pixels), std::move(labels), named_info(names));
}

// A data set of a kind that the loader does not know, with the given class names.
struct NamedSamples : Dataset {
  explicit NamedSamples(RelabelledNames names) : names_(std::move(names)) {}
  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  Sample get(int64_t index) const override { return {{{"input", torch::ones({2})}, {"target", torch::tensor(index)}}, index}; }
  DatasetInfo info() const override { return named_info(names_); }
  RelabelledNames names_;
};

}  // namespace

TEST_CASE("labels get the numbers that their names have in the other list") {
  const RelabelledNames model = {"a", "b", "c"};
  DatasetPair pair;
  pair.train = named_images({"c", "a"});
  pair.val = named_images({"c", "a"});
  const auto out = in_classes(pair, model);
  CHECK(out.info().class_names == model);
  CHECK(out.info().num_classes == 3);
  for (const auto& data : {out.train, out.val}) {
    const auto images = std::dynamic_pointer_cast<const ImageDataset>(data);
    REQUIRE(images != nullptr);  // the loader must decode them
    CHECK(images->image(0).label == 2);
    CHECK(images->image(1).label == 0);
    CHECK(images->get(0).fields[1].second.item<int64_t>() == 2);
  }

  pair = {};
  pair.train = std::make_shared<NamedSamples>(RelabelledNames{"b", "c"});
  const auto samples = in_classes(pair, model);
  CHECK(samples.train->get(0).fields[1].second.item<int64_t>() == 1);
  CHECK(samples.train->get(1).fields[1].second.item<int64_t>() == 2);
  CHECK(samples.val == nullptr);
}

TEST_CASE("texts stay sequences") {
  const TempDir dir;
  write_file_atomic(dir / "t.jsonl", "{\"text\": \"x\", \"label\": \"no\"}\n{\"text\": \"yz\", \"label\": \"yes\"}\n");
  DatasetPair pair;
  pair.train =
      std::make_shared<LabelledTexts>(std::vector<std::string>{(dir / "t.jsonl").string()}, DocumentRules{.context = 8, .pad_token = 7});
  const auto out = in_classes(pair, {"maybe", "yes", "no"});
  const auto texts = std::dynamic_pointer_cast<const SequenceDataset>(out.train);
  REQUIRE(texts != nullptr);
  CHECK(texts->padding() == 7);
  CHECK(texts->longest() == 8);
  CHECK(texts->get(0).fields[1].second.item<int64_t>() == 2);
  CHECK(texts->get(1).fields[1].second.item<int64_t>() == 1);
}

TEST_CASE("other names are refused, and lists that are not known change nothing") {
  DatasetPair pair;
  pair.train = named_images({"a", "z", "y"});
  const auto error = error_of([&] { in_classes(pair, {"a", "b"}); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "the classes z, y are not among the 2 of the model: a, b"));
  CHECK(in_classes(pair, {}).train == pair.train);
  CHECK(in_classes(pair, {"a", "z", "y"}).train == pair.train);
  pair.train = std::make_shared<TensorDataset>(torch::ones({2, 1}), torch::tensor({0, 1}));
  CHECK(in_classes(pair, {"a", "b"}).train == pair.train);
}

TEST_CASE("the difference of two lists is named") {
  CHECK(difference_of_classes({"a", "c", "z"}, {"a", "b", "c"}) == "new: z; missing: b");
  CHECK(difference_of_classes({"a"}, {"a", "b"}) == "missing: b");
  CHECK(difference_of_classes({"b", "a"}, {"a", "b"}).empty());
  CHECK(difference_of_classes({}, {"a", "b"}).empty());
}
