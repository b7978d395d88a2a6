#include "testing.hpp"

#include "npu_train/data/data_options.hpp"

#include "npu_train/data/cifar.hpp"
#include "npu_train/data/image_folder.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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
