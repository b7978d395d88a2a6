#include "testing.hpp"

#include "npu_train/tools/probe/data_stats.hpp"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "data/images.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_transforms.hpp"
#include "tar_files.hpp"
#include "tools/probe/given_data.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns `counts[c]` images of 2 x 3 pixels for each class c, with bytes that differ everywhere.
std::shared_ptr<MemoryImages> known_images(const std::vector<int64_t>& counts, uint8_t first) {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  for (size_t c = 0; c < counts.size(); ++c)
    for (int64_t i = 0; i < counts[c]; ++i) {
      labels.push_back(static_cast<int64_t>(c));
      for (int k = 0; k < 3 * 2 * 3; ++k) pixels.push_back(first = static_cast<uint8_t>(first * 5 + 3));
    }
  DatasetInfo info{"known", static_cast<int64_t>(counts.size()), {"cat", "dog"}, {3, 2, 3}, {}, {}};
  return std::make_shared<MemoryImages>(std::move(pixels), std::move(labels), std::move(info));
}

DataStatistics statistics_of(const GivenData& data) { return data_statistics(data.config, data.parts); }

/// Returns the mean and the deviation of the values divided by 255, by their definitions.
std::pair<double, double> by_definition(const std::vector<int>& values) {
  long double sum = 0, squares = 0;
  for (const int v : values) sum += v / 255.0L;
  const long double mean = sum / static_cast<long double>(values.size());
  for (const int v : values) squares += (v / 255.0L - mean) * (v / 255.0L - mean);
  return {static_cast<double>(mean), static_cast<double>(std::sqrt(squares / static_cast<long double>(values.size())))};
}

std::vector<int> bytes_of_channel(const MemoryImages& images, int64_t channel, int64_t first, int64_t count) {
  std::vector<int> out;
  for (int64_t i = 0; i < images.size(); ++i)
    for (int64_t k = first; k < first + count; ++k) out.push_back(images.pixels(i)[channel * 6 + k]);
  return out;
}

/// Texts of these lengths.
class TextsOfLengths final : public SequenceDataset {
 public:
  explicit TextsOfLengths(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  Sample get(int64_t index) const override { return {{{"input", at::zeros({lengths_[static_cast<size_t>(index)]}, at::kLong)}}, index}; }
  int64_t padding() const override { return 0; }
  int64_t longest() const override { return 64; }

 private:
  std::vector<int64_t> lengths_;
};

/// Returns a configuration of images that are cropped to 2 x 2 pixels for validation.
RunConfig cropped_config(const std::string& name, const TempDir& root) {
  RunConfig out;
  out.data.name = name;
  out.data.options.set("root", root.path().string());
  const ConfigNode crop{{"name", "center_crop"}, {"size", 2}};
  out.data.options.set("val_transforms", ConfigNode::list({crop, ConfigNode("normalize")}));
  return out;
}

DataStatistics statistics_of_archives(const TempDir& root, const std::vector<ConfigNode>& archives) {
  auto config = cropped_config("webdataset", root);
  config.data.options.set("train", ConfigNode::list(archives));
  config.data.options.set("class_names", ConfigNode::list({ConfigNode("cat"), ConfigNode("dog")}));
  config.data.options.set("shuffle", false);
  return data_statistics(config);
}

}  // namespace

TEST_CASE("images are counted exactly: classes, sizes, modes, and the pixels of the training images") {
  const auto train = known_images({8, 2}, 7), val = known_images({1, 3}, 90);
  const auto found = statistics_of(GivenData(GivenData::pair_of(train, val)));
  CHECK(found.train == 10);
  CHECK(found.val == 4);
  REQUIRE(found.classes.size() == 2);
  CHECK(found.classes[0].name == "cat");
  CHECK(found.classes[0].train == 8);
  CHECK(found.classes[1].val == 3);
  CHECK(found.sizes == std::map<std::pair<int64_t, int64_t>, int64_t>{{{2, 3}, 14}});
  CHECK(found.modes == std::map<std::string, int64_t>{{"in memory, RGB", 14}});
  CHECK(found.transformed);
  CHECK(found.bad.empty());
  REQUIRE(found.channels.size() == 3);
  for (int64_t c = 0; c < 3; ++c) {
    const auto values = bytes_of_channel(*train, c, 0, 6);
    const auto& channel = found.channels[static_cast<size_t>(c)];
    const auto [mean, std] = by_definition(values);
    int64_t sum = 0, squares = 0;
    for (const int v : values) sum += v, squares += int64_t{v} * v;
    CHECK(channel.pixels() == 60);
    CHECK(channel.sum() == sum);
    CHECK(channel.sum_of_squares() == squares);
    CHECK(std::abs(channel.mean() - mean) < 1e-15);
    CHECK(std::abs(channel.std() - std) < 1e-15);
  }
  const auto json = to_json(found);
  CHECK(json.at("imbalance", "test").number("test") == 4);
  CHECK(json.at("normalize", "test").at("mean", "test").items("test").size() == 3);
  const auto text = to_text(found);
  CHECK(has(text, "the largest class, cat, has 4 times as many training samples as the smallest, dog"));
  CHECK(has(text, "hint: data.sampler=balanced"));
  CHECK(has(text, "as a transform: {name: normalize, mean: ["));
}

TEST_CASE("pixels are counted after the transforms of the validation, without the normalisation") {
  const auto train = known_images({3, 3}, 1);
  auto pair = GivenData::pair_of(train);
  pair.val_pipeline = Pipeline({std::make_shared<CenterCrop>(1)}, {{0.5, 0.5, 0.5}, {0.1, 0.1, 0.1}});
  pair.train_pipeline = Pipeline({std::make_shared<CenterCrop>(2)});
  const auto found = statistics_of(GivenData(pair));
  CHECK(found.sizes.begin()->first == std::pair<int64_t, int64_t>{2, 3});  // before the transforms
  REQUIRE(found.channels.size() == 3);
  CHECK(found.channels[0].pixels() == 6);
  ChannelStatistics expected;
  for (int64_t i = 0; i < 6; ++i) ++expected.counts[Image::view(train->pixels(i), 2, 3, 3).crop(0, 1, 1, 1).at(2, 0, 0)];
  CHECK(found.channels[2].counts == expected.counts);
  CHECK(has(to_text(found), "all classes have the same number of training samples"));
  CHECK_FALSE(has(to_text(found), "hint:"));
}

TEST_CASE("statistics of one value, and of none") {
  ChannelStatistics one, none;
  one.counts[51] = 1'000'000'000'000;
  CHECK(one.mean() == 0.2);
  CHECK(one.std() == 0);
  CHECK(std::isnan(none.mean()));
  CHECK(std::isnan(none.std()));
  for (size_t v = 0; v < 256; ++v) {
    ChannelStatistics shade;
    shade.counts[v] = 3;
    CHECK(shade.std() == 0);
  }
  one.add(one);
  CHECK(one.sum() == 102'000'000'000'000);
}

TEST_CASE("what the data set or normalize would refuse is not advised") {
  struct OneShade final : ImageDataset {  // the class of a sample is known only from its image
    int64_t size() const override { return 4; }
    LabelledImage image(int64_t index) const override {
      static const std::vector<uint8_t> gray(3 * 5 * 6, 7);
      return {Image::view(gray.data(), 5, 6, 3), {}, index == 0 ? 1 : 0};
    }
    DatasetInfo info() const override { return {"shade", 2, {"a", "b"}, {3, 5, 6}, {}, {}}; }
  };
  const auto found = statistics_of(GivenData(std::make_shared<OneShade>()));
  const auto text = to_text(found);
  CHECK(has(text, "the largest class, a, has 3 times as many training samples as the smallest, b"));
  CHECK_FALSE(has(text, "hint:"));
  CHECK(has(text, "there is no deviation for the transform normalize"));
  CHECK_FALSE(has(text, "as a transform:"));
}

TEST_CASE("a class without samples is named, and samples that cannot be read are listed") {
  struct Broken final : ImageDataset {
    int64_t size() const override { return 4; }
    LabelledImage image(int64_t index) const override {
      check(index != 1, ErrorKind::Data, "Broken", "image 1 is broken");
      return {rough(4, 5, 1), {}, 0};
    }
    std::string where(int64_t index) const override {
      if (index == 3) throw std::runtime_error("image 3 has no name");
      return "";
    }
    DatasetInfo info() const override { return {"broken", 2, {"a", "b"}, {1, 4, 5}, {}, {}}; }
  };
  const auto found = statistics_of(GivenData(std::make_shared<Broken>()));
  CHECK(found.classes[0].train == 2);
  CHECK(found.modes == std::map<std::string, int64_t>{{"in memory, gray", 2}});
  CHECK(found.channels.size() == 1);
  REQUIRE(found.bad.size() == 2);
  CHECK(found.bad[0].index == 1);
  const auto text = to_text(found);
  CHECK(has(text, "2 cannot be read"));
  CHECK(has(text, "image 1 is broken"));
  CHECK(has(text, "image 3 has no name"));
  CHECK(has(text, "1 class has no training sample: b"));
  CHECK(to_json(found).at("imbalance", "test").is_null());
}

TEST_CASE("lengths of texts") {
  std::vector<int64_t> lengths = {64};
  for (int64_t i = 1; i <= 99; ++i) lengths.push_back(i % 2 == 0 ? 10 : 20);  // 49 of 10, 50 of 20
  const auto found = statistics_of(GivenData(std::make_shared<TextsOfLengths>(lengths)));
  CHECK(found.lengths == std::map<int64_t, int64_t>{{10, 49}, {20, 50}, {64, 1}});
  CHECK(found.channels.empty());
  const auto all = to_json(found);
  const auto& json = all.at("lengths", "test");
  const auto number = [&](const char* key) { return json.at(key, "test").number("test"); };
  CHECK(number("texts") == 100);
  CHECK(number("tokens") == 49 * 10 + 50 * 20 + 64);
  CHECK(number("min") == 10);
  CHECK(number("median") == 20);
  CHECK(number("p99") == 20);
  CHECK(number("max") == 64);
  CHECK(number("context") == 64);
  CHECK(has(to_html(found), "<figure"));  // their histogram
}

TEST_CASE("files of a folder, with and without classes, as they are stored") {
  TempDir dir;
  const Image image = rough(6, 4);
  const auto write = [&](const std::string& name, const std::vector<uint8_t>& bytes) {
    const auto path = dir / name;
    std::filesystem::create_directories(path.parent_path());
    write_bytes(path.string(), bytes);
  };
  write("plain/a.png", to_png(image));
  write("plain/b.png", to_png(rough(3, 3, 1), 16));
  write("plain/c.jpg", to_jpeg(rough(8, 8), {90, 1, false, true}));
  write("plain/d.webp", to_webp(rough(5, 5, 4)));
  std::vector<uint8_t> bmp = {'B', 'M', 58, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 16, 0};
  bmp.resize(58);  // one black pixel of 16 bits
  write("plain/e.bmp", bmp);
  write("plain/notes.txt", {1, 2, 3});
  const auto plain = folder_statistics((dir / "plain").string());
  CHECK(plain.train == 5);
  CHECK(plain.classes.empty());
  CHECK_FALSE(plain.transformed);
  CHECK(plain.modes ==
        std::map<std::string, int64_t>{
            {"JPEG, CMYK", 1}, {"PNG, RGB", 1}, {"PNG, gray, 16 bits", 1}, {"WebP, RGB and alpha", 1}, {"BMP, RGB, 5 bits", 1}});
  CHECK(plain.channels.at(0).pixels() == 24 + 9 + 64 + 25 + 1);
  write("plain/empty.png", {});
  const auto with_empty = folder_statistics((dir / "plain").string());
  CHECK(with_empty.modes == plain.modes);
  REQUIRE(with_empty.bad.size() == 1);
  CHECK(has(with_empty.bad[0].message, "empty.png: the file is empty"));

  write("classes/train/cat/a.png", to_png(image));
  write("classes/train/dog/a.png", to_png(image));
  write("classes/val/dog/a.png", to_png(rough(9, 9)));
  const auto classes = folder_statistics((dir / "classes").string());
  CHECK(classes.train == 2);
  CHECK(classes.val == 1);
  CHECK(classes.channels.at(1).pixels() == 2 * 24);  // as stored: not resized as the default transforms would
  CHECK(classes.sizes == std::map<std::pair<int64_t, int64_t>, int64_t>{{{6, 4}, 2}, {{9, 9}, 1}});
  std::filesystem::create_directories(dir / "empty");
  CHECK(error_of([&] { folder_statistics((dir / "empty").string()); }).kind() == ErrorKind::Data);
}

TEST_CASE("images of archives are counted as those of a folder, and what cannot be read is listed") {
  const TempDir dir;
  const std::vector<std::pair<std::string, std::vector<uint8_t>>> files = {
      {"cat/0.png", to_png(rough(6, 4))}, {"dog/1.jpg", to_jpeg(rough(9, 9))}, {"dog/2.webp", to_webp(rough(3, 5, 4))}};
  std::vector<TarEntry> entries;
  for (const auto& [name, bytes] : files) {
    std::filesystem::create_directories((dir / ("train/" + name)).parent_path());
    write_bytes((dir / ("train/" + name)).string(), bytes);
    entries.push_back({.name = name, .content = std::string(bytes.begin(), bytes.end())});
    entries.push_back({.name = name.substr(0, name.find('.')) + ".cls", .content = name.substr(0, 3)});
  }
  const auto archive = [&](const std::string& name, const std::string& content) {
    write_bytes((dir / name).string(), {content.begin(), content.end()});
  };
  archive("a.tar", tar_of(entries));
  const auto expected = data_statistics(cropped_config("image_folder", dir)), found = statistics_of_archives(dir, {ConfigNode("a.tar")});
  CHECK(found.train == 3);
  CHECK(found.bad.empty());
  CHECK(found.transformed);
  REQUIRE(found.classes.size() == 2);
  for (size_t c = 0; c < 2; ++c) CHECK(found.classes[c].train == expected.classes.at(c).train);
  CHECK(found.classes[1].train == 2);
  CHECK(found.sizes == expected.sizes);
  CHECK(found.modes == std::map<std::string, int64_t>{{"JPEG, RGB", 1}, {"PNG, RGB", 1}, {"WebP, RGB and alpha", 1}});
  CHECK(found.modes == expected.modes);
  REQUIRE(found.channels.size() == 3);
  for (size_t c = 0; c < 3; ++c) CHECK(found.channels[c].counts == expected.channels.at(c).counts);
  CHECK(found.channels[0].pixels() == 3 * 4);

  const auto whole = tar_of(entries);
  archive("cut.tar", whole.substr(0, whole.size() - 1024));  // its last sample might have more parts
  entries[0].content = "no image";
  archive("bad.tar", tar_of(entries));
  const auto broken = statistics_of_archives(dir, {ConfigNode("bad.tar"), ConfigNode("cut.tar"), ConfigNode("a.tar")});
  CHECK(broken.train == 3 + 3 + 3);
  CHECK(broken.modes == std::map<std::string, int64_t>{{"JPEG, RGB", 3}, {"PNG, RGB", 2}, {"WebP, RGB and alpha", 2}});
  REQUIRE(broken.bad.size() == 2);
  CHECK(broken.bad[0].index == 0);
  CHECK(has(broken.bad[0].place, "bad.tar, sample cat/0"));
  CHECK(broken.bad[1].index == 5);
  CHECK(has(broken.bad[1].message, "cut.tar, offset "));
}
