#include "testing.hpp"

#include "npu_train/data/image_dataset.hpp"

#include <fstream>

#include "images.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/relabelled.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

struct ListFolder {
  ListFolder() {
    for (const char* name : {"a.png", "sub/b.png", "c.png"}) {
      fs::create_directories((dir / name).parent_path());
      write_bytes((dir / name).string(), to_png(rough(4, 5)));
    }
  }
  std::string list(const std::string& name, const std::string& text) const {
    std::ofstream(dir / name) << text;
    return (dir / name).string();
  }
  ImageList open(const std::string& name, const std::string& text, const ImageListColumns& columns,
                 const std::vector<std::string>& classes = {}) const {
    return ImageList(dir.path().string(), list(name, text), columns, classes);
  }
  TempDir dir;
};

const ImageListColumns kLabel{.label = "label"}, kLabels{.labels = "tags"}, kValues{.values = {"x", "y"}};

std::vector<float> targets_of(const Dataset& data, int64_t index) {
  const auto target = data.get(index).fields[1].second;
  return {target.const_data_ptr<float>(), target.const_data_ptr<float>() + target.numel()};
}

}  // namespace

TEST_CASE("a list gives each image one class, from a .csv or a .jsonl") {
  const ListFolder folder;
  for (const auto& [name, text] : {std::pair("l.csv", "id,image,label\n1,sub/b.png,dog\n2,a.png,\"cat, big\"\n3,c.png,dog\n"),
                                   std::pair("l.jsonl",
                                             "{\"image\": \"sub/b.png\", \"label\": \"dog\"}\n\n{\"image\": \"a.png\", \"label\": "
                                             "\"cat, big\"}\n{\"image\": \"c.png\", \"label\": \"dog\", \"more\": 1}\n")}) {
    CAPTURE(name);
    const auto data = folder.open(name, text, kLabel);
    CHECK(data.size() == 3);
    CHECK(data.info().class_names == std::vector<std::string>{"cat, big", "dog"});
    CHECK(data.info().num_classes == 2);
    CHECK(data.targets() == 0);
    CHECK(data.where(0) == (folder.dir / "sub/b.png").string());
    CHECK((data.label(0) == 1 && data.label(1) == 0 && data.label(2) == 1));
    CHECK(data.get(1).fields[1].second.item<int64_t>() == 0);
    CHECK(data.get(0).fields[0].second.equal(data.get(2).fields[0].second));
  }
}

TEST_CASE("classes that are numbers are sorted by value") {
  const ListFolder folder;
  const auto data = folder.open("l.csv", "image,label\na.png,10\na.png,9\na.png,2\n", kLabel);
  CHECK(data.info().class_names == std::vector<std::string>{"2", "9", "10"});
  CHECK(folder.open("l.jsonl", "{\"image\": \"a.png\", \"label\": 10}\n{\"image\": \"a.png\", \"label\": 9}\n", kLabel).label(0) == 1);
  CHECK(folder.open("l.csv", "image,label\na.png,10\na.png,9\na.png,x\n", kLabel).info().class_names ==
        std::vector<std::string>{"10", "9", "x"});
}

TEST_CASE("several classes are 0 and 1 for each; an image may have none") {
  const ListFolder folder;
  const auto data = folder.open("l.csv", "image,tags\na.png,sun; sea\nc.png,\nsub/b.png,sea;sea\n", kLabels);
  CHECK(data.info().class_names == std::vector<std::string>{"sea", "sun"});
  CHECK(data.targets() == 2);
  CHECK(data.label(0) == -1);
  CHECK((targets_of(data, 0) == std::vector<float>{1, 1}));
  CHECK((targets_of(data, 1) == std::vector<float>{0, 0}));
  CHECK((targets_of(data, 2) == std::vector<float>{1, 0}));
  const auto lines =
      folder.open("l.jsonl", "{\"image\": \"a.png\", \"tags\": [\"sun\", \"sea\"]}\n{\"image\": \"c.png\", \"tags\": []}\n", kLabels);
  CHECK((targets_of(lines, 0) == std::vector<float>{1, 1}));
  CHECK((targets_of(lines, 1) == std::vector<float>{0, 0}));
  const auto bar = folder.open("l.csv", "image,tags\na.png,sun|sea\n", {.labels = "tags", .separator = "|"});
  CHECK(bar.targets() == 2);
}

TEST_CASE("numbers are the targets of a regression") {
  const ListFolder folder;
  const auto data = folder.open("l.csv", "image,y,x\na.png,0.5,-2\nc.png,1e3,7\n", kValues);
  CHECK(data.info().class_names == std::vector<std::string>{"x", "y"});
  CHECK((targets_of(data, 0) == std::vector<float>{-2, 0.5}));
  CHECK((targets_of(data, 1) == std::vector<float>{7, 1000}));
  CHECK((targets_of(folder.open("l.jsonl", "{\"image\": \"a.png\", \"x\": 1, \"y\": 2.5}\n", kValues), 0) == std::vector<float>{1, 2.5}));
}

TEST_CASE("a line that cannot be used is named") {
  const ListFolder folder;
  const auto error = [&](const std::string& name, const std::string& text, const ImageListColumns& columns,
                         const std::vector<std::string>& classes = {}) {
    return error_of([&] { folder.open(name, text, columns, classes); });
  };
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"image,label\na.png,cat\n../x.png,dog\n", "line 3: the image '../x.png' leads out of data.root"},
           {"image,label\n/etc/x.png,dog\n", "line 2: the image '/etc/x.png' leads out of data.root"},
           {"image,label\na.gif,dog\n", "line 2: the image is 'a.gif'; allowed"},
           {"image,label\na.png,cat\na.png,\n", "line 3: the label is empty"},
           {"image,label\n", "lists no image"},
           {"", "is empty"},
           {"image,class\na.png,cat\n", "no column 'label'"},
           {"image,label\na.png,cat,dog\n", "3 cells"}}) {
    const auto found = error("l.csv", text, kLabel);
    CHECK(found.kind() == ErrorKind::Data);
    CHECK_MESSAGE(has(found.what(), words), found.what());
  }
  CHECK(has(error("l.csv", "image,label\na.png,emu\n", kLabel, {"cat"}).what(), "no class of the training data is called 'emu'"));
  CHECK(has(error("l.csv", "image,x,y\na.png,1,\n", kValues).what(), "line 2: 'y' is nan; allowed: a finite number"));
  CHECK(has(error("l.csv", "image,x,y\na.png,1,1e300\n", kValues).what(), "'y' is"));
  CHECK(has(error("l.csv", "image,x,y\na.png,1,two\n", kValues).what(), "'two' is not a number"));
  CHECK(has(error("l.csv", "image,tags\na.png,\n", kLabels).what(), "no line has a label"));
  CHECK(has(error("l.jsonl", "{\"image\": \"a.png\"}\n", kLabel).what(), "label"));
  CHECK(has(error("l.jsonl", "{\"image\": \"a.png\", \"label\": [1]}\n", kLabel).what(), "line 1"));
  CHECK(has(error("l.txt", "a.png cat\n", kLabel).what(), "ends in .csv or .jsonl"));
  CHECK(has(error("l.csv", "image\na.png\n", {}).what(), "none of label, labels and values"));
  CHECK(has(error("l.csv", "image\na.png\n", {.label = "a", .values = {"b"}}).what(), "several of label, labels and values"));
  CHECK(error_of([&] { ImageList(folder.dir.path().string(), (folder.dir / "none.csv").string(), kLabel); }).kind() == ErrorKind::Data);
}

TEST_CASE("batches have the targets, in every subset and renumbering") {
  const ListFolder folder;
  std::string text = "image,tags\n";
  for (int i = 0; i < 8; ++i) text += i % 2 == 0 ? "a.png,p;r\n" : "c.png,q\n";
  folder.list("train.csv", text);
  auto pair = builtin_datasets().make({"image_list",
                                       {{"root", folder.dir.path().string()},
                                        {"train", "train.csv"},
                                        {"labels", "tags"},
                                        {"val_split", 0.25},
                                        {"batch_size", 3},
                                        {"image_size", 4},
                                        {"num_workers", "0"}}},
                                      "data", builtin_transforms());
  CHECK((pair.train->size() == 6 && pair.val->size() == 2));
  const auto check = [](const DatasetPair& data, const std::vector<std::vector<float>>& of) {
    auto loader = val_loader(data, {});
    loader.begin_epoch(0);
    const auto batch = loader.next();
    REQUIRE(batch);
    REQUIRE((batch->target().sizes() == at::IntArrayRef({2, static_cast<int64_t>(of[0].size())})));
    for (int64_t row = 0; row < 2; ++row) {
      const auto& wanted = of[static_cast<size_t>(
          batch->ids[static_cast<size_t>(row)] >= 0 && data.val->where(batch->ids[static_cast<size_t>(row)]).ends_with("c.png") ? 1 : 0)];
      CHECK(batch->target()[row].equal(at::tensor(wanted)));
    }
  };
  check(pair, {{1, 0, 1}, {0, 1, 0}});
  check(in_classes(pair, {"r", "extra", "p", "q"}), {{1, 0, 1, 0}, {0, 0, 0, 1}});
}

TEST_CASE("the options of a list are checked") {
  const ListFolder folder;
  folder.list("l.csv", "image,label,x\na.png,cat,1\nc.png,dog,2\n");
  const auto error = [&](ConfigNode options) {
    options.set("root", folder.dir.path().string());
    return std::string(error_of([&] { builtin_datasets().make({"image_list", options}, "data", builtin_transforms()); }).what());
  };
  CHECK(has(error(ConfigNode{{"train", ConfigNode("")}}), "no list is named"));
  CHECK(has(error(ConfigNode{{"train", "l.csv"}, {"val", "l.csv"}, {"val_split", 0.5}}), "omit data.val_split"));
  CHECK(has(error(ConfigNode{{"train", "l.csv"}, {"values", ConfigNode::list({"x"})}, {"mixup_alpha", 0.2}}),
            "mixup and cutmix mix one class"));
  const ConfigNode options{
      {"root", folder.dir.path().string()}, {"train", "l.csv"}, {"val", "l.csv"}, {"test", "l.csv"}, {"batch_size", 1}};
  const auto pair = builtin_datasets().make({"image_list", options}, "data", builtin_transforms());
  CHECK((pair.val->size() == 2 && pair.open_test()->size() == 2));
  CHECK(pair.info().class_names == std::vector<std::string>{"cat", "dog"});
}
