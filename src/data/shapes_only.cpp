#include "npu_train/data/shapes_only.hpp"

#include <algorithm>
#include <filesystem>
#include <string>

#include "data/image_file.hpp"
#include "data/webdataset.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {
namespace {

constexpr int64_t kTrainImages = 50'000, kValImages = 10'000;  // the sizes of CIFAR
constexpr int64_t kImagenetSide = 224, kImagenetClasses = 1000;

/// Random images, generated on request.
class RandomImages final : public ImageDataset {
 public:
  RandomImages(DatasetInfo info, int64_t size) : info_(std::move(info)), size_(size) {}
  int64_t size() const override { return size_; }
  DatasetInfo info() const override { return info_; }
  int64_t label(int64_t index) const override { return index % info_.num_classes; }
  LabelledImage image(int64_t index) const override {
    Philox rng(derive_seed(0, "shapes only", static_cast<uint64_t>(index)));
    auto pixels = Image::allocate(info_.shape[1], info_.shape[2], info_.shape[0]);
    for (int64_t c = 0; c < info_.shape[0]; ++c)
      std::generate_n(pixels.mutable_plane(c), pixels.pixels(), [&] { return static_cast<uint8_t>(rng()); });
    return {std::move(pixels), {}, label(index)};
  }

 private:
  DatasetInfo info_;
  int64_t size_;
};

DatasetPair random_pair(const DataOptions& options, DatasetInfo info, const TransformRegistry& transforms) {
  DatasetPair pair;
  pair.options = options;
  if (!options.sampler_file.empty()) {  // the file chooses among samples that are not read here
    pair.options.sampler = "uniform";
    pair.options.sampler_file.clear();
  }
  set_pipelines(pair, info, transforms);
  pair.val = std::make_shared<RandomImages>(info, kValImages);
  pair.train = std::make_shared<RandomImages>(std::move(info), kTrainImages);
  return pair;
}

/// Returns height and width of the images.
int64_t side_of(const DataOptions& options) { return options.image_size > 0 ? options.image_size : kImagenetSide; }

/// Returns the number of folders of classes; 0 if they cannot be read.
int64_t class_folders(const std::string& root) {
  int64_t out = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(detail::training_folder(root), error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->path().filename().string()[0] != '.' && it->is_directory(gone)) ++out;
  }
  return error ? 0 : out;
}

DatasetPair random_folder(const ImageFolderOptions& options, int64_t num_classes, const TransformRegistry& transforms) {
  const auto there = class_folders(options.root);
  const auto side = side_of(options);
  DatasetInfo info{.name = "image_folder",
                   .num_classes = there > 0         ? there
                                  : num_classes > 0 ? num_classes
                                                    : kImagenetClasses,
                   .class_names = {},
                   .shape = {3, side, side},
                   .mean = {0.485, 0.456, 0.406},
                   .std = {0.229, 0.224, 0.225}};
  return random_pair(options, std::move(info), transforms);
}

}  // namespace

DatasetRegistry shapes_only(DatasetRegistry registry, int64_t num_classes) {
  const auto builtin = builtin_datasets();
  const auto replace = [&]<class Options>(const std::string& name, auto make) {
    if (!registry.contains(name) || registry.doc(name) != builtin.doc(name)) return;
    registry.add<Options>(name, builtin.doc(name), make);
  };
  replace.operator()<Cifar10Options>(
      "cifar10", [](const Cifar10Options& o, const TransformRegistry& t) { return random_pair(o, cifar_info(CifarKind::Cifar10), t); });
  replace.operator()<Cifar100Options>(
      "cifar100", [](const Cifar100Options& o, const TransformRegistry& t) { return random_pair(o, cifar_info(CifarKind::Cifar100), t); });
  replace.operator()<ImageFolderOptions>(
      "image_folder", [num_classes](const ImageFolderOptions& o, const TransformRegistry& t) { return random_folder(o, num_classes, t); });
  replace.operator()<detail::WebdatasetOptions>("webdataset", [](const detail::WebdatasetOptions& o, const TransformRegistry& t) {
    auto info = detail::webdataset_info(o);
    info.class_names.clear();
    info.shape = {3, side_of(o), side_of(o)};
    return random_pair(o, std::move(info), t);
  });
  return registry;
}

}  // namespace npu_train
