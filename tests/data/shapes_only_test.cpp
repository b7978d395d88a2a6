#include "testing.hpp"

#include <ATen/ops/zeros.h>

#include "npu_train/data/shapes_only.hpp"

#include <filesystem>

#include "npu_train/core/error.hpp"
#include "npu_train/data/image_dataset.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DatasetPair opened(const std::string& name, ConfigNode options, int64_t classes = 0) {
  return shapes_only(builtin_datasets(), classes).make({name, std::move(options), {}}, "data", builtin_transforms());
}

Batch first_batch(const DatasetPair& pair) {
  auto loader = train_loader(pair, {.seed = 1});
  loader.begin_epoch(0);
  return loader.next()->finished();
}

}  // namespace

TEST_CASE("batches of the shapes that the data set would give, and no file is opened") {
  const auto cifar = opened("cifar100", {{"root", "/nowhere"}, {"batch_size", 3}, {"num_workers", "0"}, {"image_size", 48}});
  CHECK(cifar.info().num_classes == 100);
  CHECK(cifar.info().shape == std::vector<int64_t>{3, 32, 32});
  CHECK(cifar.info().mean == cifar_info(CifarKind::Cifar100).mean);
  auto batch = first_batch(cifar);
  CHECK((batch.input().sizes() == at::IntArrayRef({3, 3, 48, 48})));
  CHECK((batch.target().scalar_type() == at::kLong));
  CHECK((cifar.val != nullptr));

  const auto folder = opened("image_folder", {{"root", "/nowhere"}, {"batch_size", 2}, {"num_workers", "0"}, {"mixup_alpha", 0.2}}, 7);
  CHECK(folder.info().num_classes == 7);
  batch = first_batch(folder);
  CHECK((batch.input().sizes() == at::IntArrayRef({2, 3, 224, 224})));
  CHECK((batch.target().sizes() == at::IntArrayRef({2, 7})));  // mixed, as in training
  CHECK(opened("image_folder", {{"root", "/nowhere"}}).info().num_classes == 1000);
}

TEST_CASE("classes are counted by the folders, whatever is in them") {
  const TempDir dir;
  for (const char* name : {"train/cat", "train/dog", "train/eel", "train/.hidden"}) std::filesystem::create_directories(dir / name);
  CHECK(opened("image_folder", {{"root", dir.path().string()}}, 1000).info().num_classes == 3);
}

TEST_CASE("options are checked as before, and a data set of one's own stays") {
  CHECK((error_of([] { opened("cifar10", {{"rot", "/nowhere"}}); }).kind() == ErrorKind::Usage));
  auto registry = builtin_datasets();
  registry.add<ImageFolderOptions>("image_folder", "mine", [](const ImageFolderOptions& o) {
    DatasetPair pair;
    pair.options = o;
    pair.train = std::make_shared<TensorDataset>(at::zeros({4, 2}), at::zeros({4}));
    return pair;
  });
  CHECK(shapes_only(registry).make({"image_folder", ConfigNode::map(), {}}, "data", builtin_transforms()).train->size() == 4);
}
