#include "data/webdataset.hpp"

#include "data/shard_names.hpp"
#include "data/shard_stream.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train::detail {
namespace {

// Extensions of files are compared in lower case, so a key with a capital letter would match none.
void check_extension(const std::string& extension, const char* key) {
  check(!extension.empty() && extension.front() != '.' && extension == to_lower(extension), ErrorKind::Usage, key, "'", extension,
        "' matches no part of a sample; allowed: an extension in lower case, without the dot before it, such as jpg or seg.png");
}

}  // namespace

DatasetInfo webdataset_info(const WebdatasetOptions& options) {
  const auto& names = options.class_names;
  const auto named = static_cast<int64_t>(names.size());
  check(options.num_classes > 0 || named > 0, ErrorKind::Usage, "data.num_classes",
        "is not given; archives do not contain the number of classes; hint: data.num_classes=1000, or data.class_names");
  check(options.num_classes == 0 || named == 0 || options.num_classes == named, ErrorKind::Usage, "data.num_classes", "is ",
        options.num_classes, ", and data.class_names has ", named, " names; allowed: one of them, or equal numbers");
  return {.name = "webdataset",
          .num_classes = named > 0 ? named : options.num_classes,
          .class_names = names,
          .shape = {3, -1, -1},
          .mean = {0.485, 0.456, 0.406},
          .std = {0.229, 0.224, 0.225}};
}

DatasetPair open_webdataset(const WebdatasetOptions& options, const TransformRegistry& transforms) {
  check(!options.train.empty(), ErrorKind::Usage, "data.train", "no archives are named; hint: data.train=['train-{000..147}.tar']");
  check(!options.image.empty(), ErrorKind::Usage, "data.image", "names no part of a sample; hint: data.image=[jpg, png]");
  for (const auto& extension : options.image) check_extension(extension, "data.image");
  check_extension(options.label, "data.label");
  const auto info = webdataset_info(options);
  const SampleParts parts = options;
  auto train = shard_files(options.root, options.train, "data.train");
  const auto open = [root = options.root, parts, info](const std::vector<std::string>& patterns, const char* key) {
    return std::make_shared<ShardImages>(shard_files(root, patterns, key), parts, info);
  };
  DatasetPair pair;
  pair.options = options;
  pair.left_out = with_commas(static_cast<int64_t>(train.size())) + (train.size() == 1 ? " archive" : " archives") + " for training";
  pair.train_stream = std::make_shared<ShardStream>(std::move(train), parts, info,
                                                    ShardOrder{.shuffle = options.shuffle, .buffer = options.shuffle_buffer});
  if (!options.val.empty())
    pair.val = open(options.val, "data.val");
  else
    log_warning("data.val is not set; the run does not validate");
  if (!options.test.empty()) {
    shard_files(options.root, options.test, "data.test");  // a missing archive is an error now, not after the training
    pair.open_test = [open, test = options.test] { return open(test, "data.test"); };
  }
  set_pipelines(pair, info, transforms);
  return pair;
}

WebdatasetOptions::WebdatasetOptions() : DataOptions(ImageFolderOptions()) {}

const ConfigTable<WebdatasetOptions>& WebdatasetOptions::config_table() {
  using T = WebdatasetOptions;
  const auto of_sample = []<class V>(V SampleParts::*member) { return static_cast<V T::*>(member); };
  static const auto table = data_fields(
      ConfigTable<T>("data webdataset")
          .field("root", &T::root, "folder to which the names of archives are relative")
          .field("train", &T::train, "training archives: .tar files, folders of them, or several in one name, as in train-{000..147}.tar")
          .field("val", &T::val, "validation archives, in the same way; []: none")
          .field("test", &T::test, "test archives")
          .field("image", of_sample(&SampleParts::image), "extensions of a sample's image; it has one of them")
          .field("label", of_sample(&SampleParts::label), "extension of a sample's class: a number or name, or a .json object")
          .field("label_key", of_sample(&SampleParts::label_key), "key of the class in a .json")
          .field("num_classes", &T::num_classes, "number of classes, which the archives do not contain", at_least(0))
          .field("class_names", &T::class_names, "names of the classes, by number; []: without names")
          .field("shuffle_buffer", &T::shuffle_buffer, "with shuffle: the next sample is drawn from this many", between(1, 1'000'000)));
  return table;
}

}  // namespace npu_train::detail
