#include "testing.hpp"

#include "npu_train/tools/probe/data_show.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "data/images.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/image_codec.hpp"
#include "tar_files.hpp"
#include "tools/probe/given_data.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns a configuration of 40 generated images, which are cropped, flipped and normalised in batches of 8.
RunConfig shown_config(ConfigNode more = ConfigNode::map()) {
  RunConfig config;
  config.seed = 11;
  config.device = "cpu";
  ConfigNode crop{{"name", "random_crop"}, {"size", 32}, {"padding", 4}};
  config.data = {.name = "generated", .options = {{"train_size", 40}, {"val_size", 16}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.data.options.set("train_transforms", ConfigNode::list({crop, ConfigNode("horizontal_flip"), ConfigNode("normalize")}));
  for (const auto& member : more.members()) config.data.options.set(member.key, member.value);
  return config;
}

Image shown_image(const ShownVersion& version) {
  return decode_image({version.png.begin(), version.png.end()}, "shown").dense(PixelOrder::Planar);
}

/// Compares the shown samples with the batches that the loader of a run delivers. Returns the largest difference of a byte.
double largest_difference_from_loader(const RunConfig& config, const DataShow& show, int64_t epochs) {
  const auto parts = builtin_parts();
  const auto pair = parts.datasets.make(config.data, "data", parts.transforms);
  auto loader = train_loader(pair, {.seed = static_cast<uint64_t>(config.seed)});
  std::map<int64_t, const ShownSample*> wanted;
  for (const auto& sample : show.samples) wanted[sample.index] = &sample;
  const auto names = pair.info().class_names;
  double worst = 0;
  int64_t found = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    loader.begin_epoch(epoch);
    while (const auto next = loader.next()) {
      const auto batch = next->finished();
      const auto input = batch.input().contiguous();
      const int64_t area = input.size(2) * input.size(3);
      for (size_t row = 0; row < batch.ids.size(); ++row) {
        const auto sample = wanted.find(batch.ids[row]);
        if (sample == wanted.end()) continue;
        ++found;
        const auto& version = sample->second->versions.at(static_cast<size_t>(epoch));
        CHECK(version.epoch == epoch);
        const Image image = shown_image(version);
        const auto* value = input.const_data_ptr<float>() + static_cast<int64_t>(row) * 3 * area;
        for (int64_t c = 0; c < 3; ++c) {
          const double scale = pair.train_pipeline.scale()[static_cast<size_t>(c)],
                       shift = pair.train_pipeline.shift()[static_cast<size_t>(c)];
          for (int64_t i = 0; i < area; ++i)
            worst = std::max(worst, std::abs(image.plane(c)[i] - (static_cast<double>(*value++) - shift) / scale));
        }
        if (batch.target().dim() == 1) continue;
        const auto target = batch.target().contiguous();
        const auto* share = target.const_data_ptr<float>() + static_cast<int64_t>(row) * target.size(1);
        std::map<std::string, double> labels(version.labels.begin(), version.labels.end());
        for (int64_t k = 0; k < target.size(1); ++k) {
          const auto& name = names.at(static_cast<size_t>(k));
          CHECK(labels[name] == doctest::Approx(share[k]));
          if (share[k] == 0) labels.erase(name);
        }
        CHECK(labels.size() == version.labels.size());
      }
    }
  }
  CHECK(found == static_cast<int64_t>(show.samples.size()) * epochs);
  return worst;
}

DataShow show_given(const GivenData& data, const DataShowOptions& options) { return show_data(data.config, options, data.parts); }

/// Returns a data set of these inputs without transforms.
GivenData tensors(const at::Tensor& inputs) {
  return GivenData(std::make_shared<TensorDataset>(inputs, at::zeros({inputs.size(0)}, at::kLong)));
}

/// Gray images. `on_read` is called with the number of an image that is read.
class GrayImages final : public ImageDataset {
 public:
  GrayImages(int64_t size, std::function<void(int64_t)> on_read) : size_(size), on_read_(std::move(on_read)) {}
  int64_t size() const override { return size_; }
  int64_t label(int64_t index) const override { return index % 2; }
  LabelledImage image(int64_t index) const override {
    on_read_(index);
    return {Image::view(gray_.data(), 5, 6, 3), {}, index % 2};
  }
  DatasetInfo info() const override { return {"gray", 2, {"a", "b"}, {3, 5, 6}, {}, {}}; }

 private:
  int64_t size_;
  std::function<void(int64_t)> on_read_;
  std::vector<uint8_t> gray_ = std::vector<uint8_t>(3 * 5 * 6, 100);
};

}  // namespace

TEST_CASE("images are shown as the loader delivers them in each epoch") {
  const auto config = shown_config();
  const auto show = show_data(config, {.images = 6, .versions = 3});
  REQUIRE(show.samples.size() == 6);
  CHECK(largest_difference_from_loader(config, show, 3) < 1e-3);
  for (const auto& sample : show.samples) {
    REQUIRE(sample.versions.size() == 3);
    CHECK(sample.label != "");
    CHECK(sample.versions[0].labels.empty());
    CHECK(sample.versions[0].problem == "");
  }
  const auto& versions = show.samples[0].versions;
  CHECK((versions[0].png != versions[1].png || versions[0].png != versions[2].png));  // the augmentation changes from epoch to epoch
  CHECK(show.transforms == "random_crop, horizontal_flip, normalize (undone here)");
}

TEST_CASE("mixed images are shown with their partners and the shares of their classes") {
  for (const char* mixing : {"mixup_alpha", "cutmix_alpha"}) {
    const auto config = shown_config({{mixing, 1.0}});
    const auto show = show_data(config, {.images = 5, .versions = 2});
    CHECK(largest_difference_from_loader(config, show, 2) < 0.501);  // values between bytes are rounded
    bool mixed = false;
    for (const auto& sample : show.samples)
      for (const auto& version : sample.versions) mixed = mixed || version.labels.size() == 2;
    CHECK(mixed);
    const auto page = to_html(show);
    CHECK(has(page, " %</b>"));
    CHECK(has(page, "data:image/png;base64,"));
  }
}

TEST_CASE("transforms on the device show the same images as on the host") {
  const auto host = show_data(shown_config({{"mixup_alpha", 0.5}}), {.images = 4, .versions = 2});
  const auto device = show_data(shown_config({{"mixup_alpha", 0.5}, {"augment_on", "device"}}), {.images = 4, .versions = 2});
  for (size_t i = 0; i < 4; ++i)
    for (size_t v = 0; v < 2; ++v) CHECK(host.samples[i].versions[v].png == device.samples[i].versions[v].png);
  CHECK(host.where == "host");
  CHECK(has(device.where, "on the device: random_crop, horizontal_flip"));
}

TEST_CASE("of a stream the first images of its first epoch are shown, as its loader delivers them") {
  const TempDir dir;
  const auto archive = [&](const std::string& name, int64_t first, const std::string& damaged) {
    std::vector<TarEntry> entries;
    for (int64_t i = first; i < first + 10; ++i) {
      const auto file = to_png(rough(36, 36 + i));
      const auto key = std::to_string(i);
      entries.push_back({.name = key + ".png", .content = key == damaged ? "no image" : std::string(file.begin(), file.end())});
      entries.push_back({.name = key + ".cls", .content = std::to_string(i % 3)});
    }
    const auto bytes = tar_of(entries);
    write_bytes((dir / name).string(), {bytes.begin(), bytes.end()});
  };
  archive("a.tar", 0, "");
  archive("b.tar", 10, "");
  auto config = shown_config();
  const auto transforms = *config.data.options.find("train_transforms");
  config.data = {.name = "webdataset",
                 .options = {{"root", dir.path().string()}, {"batch_size", 4}, {"num_workers", "0"}, {"shuffle_buffer", 5}}};
  config.data.options.set("train", ConfigNode::list({ConfigNode("a.tar"), ConfigNode("b.tar")}));
  config.data.options.set("class_names", ConfigNode::list({ConfigNode("ant"), ConfigNode("bee"), ConfigNode("cow")}));
  config.data.options.set("train_transforms", transforms);
  const auto show = show_data(config, {.images = 6});
  REQUIRE(show.samples.size() == 6);
  CHECK(largest_difference_from_loader(config, show, 1) < 1e-3);
  for (const auto& sample : show.samples) {
    REQUIRE(sample.versions.size() == 1);
    const auto key = std::stoi(sample.file.substr(sample.file.find(".tar, sample ") + 13));
    CHECK(sample.label == std::vector<std::string>{"ant", "bee", "cow"}.at(static_cast<size_t>(key % 3)));
    CHECK(shown_image(sample.versions[0]).height() == 32);
  }
  CHECK(show_data(config, {.images = 100}).samples.size() == 20);
  CHECK(has(error_of([&] { show_data(config, {.images = 6, .versions = 2}); }).what(), "2 versions of a stream"));
  auto mixed = config;
  mixed.data.options.set("mixup_alpha", 1.0);
  CHECK(largest_difference_from_loader(mixed, show_data(mixed, {.images = 6}), 1) < 0.501);

  archive("a.tar", 0, "7");
  int64_t missing = 0;
  for (const auto& sample : show_data(config, {.images = 20}).samples) {
    const bool damaged = has(sample.file, "a.tar, sample 7");
    CHECK(has(sample.versions.at(0).problem, "none of JPEG, PNG, WebP and BMP") == damaged);
    missing += damaged;
  }
  CHECK(missing == 1);
}

TEST_CASE("the seed chooses images and augmentations, and validation has no augmentation") {
  auto config = shown_config();
  const auto indices = [](const DataShow& show) {
    std::vector<int64_t> out;
    for (const auto& sample : show.samples) out.push_back(sample.index);
    return out;
  };
  const auto first = show_data(config, {.images = 8}), again = show_data(config, {.images = 8});
  CHECK(first.samples[0].versions.size() == 4);
  CHECK(indices(first) == indices(again));
  CHECK(first.samples[3].versions[2].png == again.samples[3].versions[2].png);
  config.seed = 12;
  CHECK(indices(show_data(config, {.images = 8})) != indices(first));
  const auto val = show_data(config, {.images = 100, .validation = true});
  CHECK(val.samples.size() == 16);
  CHECK(val.samples[0].versions.size() == 1);
  CHECK(has(to_text(val), "16 images, as they are in the first epoch of a validation"));
}

TEST_CASE("of a training that mixes, only the micro-batches of the shown images are read") {
  std::atomic<int64_t> reads = 0;
  auto pair = GivenData::pair_of(std::make_shared<GrayImages>(40, [&reads](int64_t) { ++reads; }));
  pair.options.batch_size = 4;
  pair.options.num_workers = "4";
  pair.options.mixup_alpha = 0.5;
  const auto show = show_given(GivenData(pair), {.images = 1, .versions = 3});
  CHECK(show.samples.at(0).versions.at(2).problem == "");
  CHECK(reads == 3 * 4);
}

TEST_CASE("pictures of more pixels than a page has are scaled down, and the page says so") {
  const auto config = shown_config();
  const auto whole = show_data(config, {.images = 4, .versions = 2}),
             small = show_data(config, {.images = 4, .versions = 2, .pixels = 8 * 16 * 16});
  for (size_t i = 0; i < 4; ++i)
    for (size_t v = 0; v < 2; ++v) {
      const auto& version = small.samples[i].versions[v];
      CHECK(version.height == 32);
      CHECK(version.png_height == 16);
      const Image picture = shown_image(version), expected = resize(shown_image(whole.samples[i].versions[v]), 16, 16);
      REQUIRE(picture.height() == 16);
      REQUIRE(picture.width() == 16);
      CHECK(std::equal(expected.plane(0), expected.plane(0) + 3 * 16 * 16, picture.plane(0)));
    }
  CHECK(has(to_html(small), "from 32 x 32 to 16 x 16 pixels"));
  CHECK_FALSE(has(to_html(whole), "scaled down"));
}

TEST_CASE("tensors of bytes are shown as they are, and of other tensors black and white are not known") {
  const auto bytes = at::arange(2 * 3 * 4 * 5, at::kByte).reshape({2, 3, 4, 5});
  const auto show = show_given(tensors(bytes), {.images = 2, .versions = 1});
  REQUIRE(show.samples.size() == 2);
  for (const auto& sample : show.samples) {
    const Image picture = shown_image(sample.versions[0]);
    REQUIRE(picture.pixels() == 20);
    CHECK(std::equal(picture.plane(0), picture.plane(0) + 60, bytes.select(0, sample.index).const_data_ptr<uint8_t>()));
  }
  const auto error = error_of([] { show_given(tensors(at::zeros({2, 3, 4, 5})), {.images = 2}); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "'given' are tensors of Float without transforms"));

  const auto lines = tensors(at::zeros({2, 3, 1, 1000}, at::kByte));  // they can be scaled down in one direction only
  const auto narrow = show_given(lines, {.images = 2, .versions = 1, .pixels = 20}).samples[0].versions[0];
  CHECK(narrow.png_height == 1);
  CHECK(narrow.png_width == 10);
}

TEST_CASE("an image that drop_last omits is missing, but not unreadable") {
  const auto show = show_data(shown_config({{"batch_size", 12}, {"drop_last", true}}), {.images = 40, .versions = 1});
  int64_t omitted = 0;
  for (const auto& sample : show.samples) {
    omitted += has(sample.versions[0].problem, "data.drop_last") ? 1 : 0;
    CHECK_FALSE(sample.versions[0].unreadable);
  }
  CHECK(omitted == 4);
}

TEST_CASE("what cannot be shown is refused, and an image that cannot be read has its reason") {
  CHECK(error_of([] { show_data(shown_config(), {.images = 1001, .versions = 2}); }).kind() == ErrorKind::Usage);
  RunConfig text;
  text.data = {.name = "generated_text", .options = {{"train_size", 64}, {"val_size", 8}}};
  text.device = "cpu";
  CHECK(error_of([&] { show_data(text, {.images = 2}); }).kind() == ErrorKind::Usage);
  const auto broken = [](int64_t index) { check(index != 2, ErrorKind::Data, "GrayImages", "image 2 is broken"); };
  const auto show = show_given(GivenData(std::make_shared<GrayImages>(4, broken)), {.images = 4, .versions = 2});
  REQUIRE(show.samples.size() == 4);
  for (const auto& sample : show.samples)
    for (const auto& version : sample.versions) {
      CHECK(version.png.empty() == (sample.index == 2));
      CHECK(has(version.problem, "image 2 is broken") == (sample.index == 2));
      CHECK(version.unreadable == (sample.index == 2));
    }
  CHECK(has(to_html(show), "image 2 is broken"));
  CHECK(has(to_text(show), "2 of 8 pictures are missing"));
}
