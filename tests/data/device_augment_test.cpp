#include "testing.hpp"

#include "npu_train/data/device_augment.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "images.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/image_transforms.hpp"
#include "npu_train/data/mixup.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DatasetInfo info_of(const std::string& name, int64_t classes, std::vector<int64_t> shape) {
  DatasetInfo out;
  out.name = name;
  out.num_classes = classes;
  out.shape = std::move(shape);
  return out;
}

/// Returns 11 images; every second one is smooth, the others are noise, and the last is white.
std::shared_ptr<MemoryImages> some_images(int64_t channels = 3, int64_t h = 20, int64_t w = 26) {
  Philox rng(5);
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 11; ++i) {
    labels.push_back(i % 4);
    for (int64_t p = 0; p < channels * h * w; ++p)
      pixels.push_back(i == 10 ? 255 : static_cast<uint8_t>(i % 2 == 0 ? p * (i + 1) / 7 % 256 : rng.below(256)));
  }
  return std::make_shared<MemoryImages>(std::move(pixels), std::move(labels), info_of("some", 4, {channels, h, w}));
}

Pipeline chain_of(const std::vector<PartConfig>& parts) {
  return Pipeline::from_config(parts, "chain", {.image_size = 16, .mean = {0.4, 0.5, 0.6}, .std = {0.2, 0.25, 0.3}});
}

/// Returns the batches of two epochs, with pending changes applied.
std::vector<Batch> batches(const std::shared_ptr<const Dataset>& data, const Pipeline& pipeline, LoaderOptions options) {
  options.batch_size = 4;
  options.shuffle = true;
  Loader loader(data, pipeline, options);
  std::vector<Batch> out;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.begin_epoch(epoch);
    while (auto batch = loader.next()) {
      CHECK(batch->pending.empty() == !options.augment_on_device);
      if (options.augment_on_device) CHECK((batch->input().scalar_type() == at::kByte));
      out.push_back(batch->finished());
    }
  }
  return out;
}

/// Checks that a chain gives the same bits for every field of every batch, whether it runs on the host or on the device.
void check_equal(const std::shared_ptr<const Dataset>& data, const std::vector<PartConfig>& parts, LoaderOptions options = {.seed = 3}) {
  std::vector<std::string> names;
  for (const auto& p : parts) names.push_back(p.name);
  const std::string chain = join(names);
  CAPTURE(chain);
  const auto pipeline = chain_of(parts);
  const auto host = batches(data, pipeline, options);
  options.augment_on_device = true;
  const auto device = batches(data, pipeline, options);
  REQUIRE(host.size() == device.size());
  for (size_t i = 0; i < host.size(); ++i) {
    CAPTURE(i);
    REQUIRE(host[i].fields().size() == device[i].fields().size());
    for (const auto& [name, value] : host[i].fields()) {
      CAPTURE(name);
      const at::Tensor& other = device[i].at(name);
      REQUIRE(other.sizes() == value.sizes());
      CHECK(other.strides() == value.strides());
      CHECK((other - value).abs().max().item<double>() == 0);
    }
    CHECK(host[i].ids == device[i].ids);
    CHECK(host[i].size == device[i].size);
  }
}

const std::vector<PartConfig> kEach = {
    part("center_crop", {{"size", 12}}),
    part("center_crop", {{"size", 24}}),
    part("random_crop", {{"size", 16}, {"padding", 3}}),
    part("random_crop", {{"size", 9}}),
    part("horizontal_flip"),
    part("color_jitter", {{"brightness", 0.6}, {"contrast", 0.5}, {"saturation", 0.7}, {"hue", 0.5}}),
    part("color_jitter", {{"brightness", 0.0}, {"contrast", 0.9}, {"saturation", 0.0}, {"hue", 0.0}}),
    part("color_jitter", {{"brightness", 1.5}, {"contrast", 0.0}, {"saturation", 0.0}, {"hue", 0.2}}),
    part("color_jitter", {{"brightness", 0.0}, {"contrast", 0.0}, {"saturation", 2.0}, {"hue", 0.0}}),
    part("random_rotation", {{"degrees", 180}}),
    part("gaussian_blur", {{"kernel", 5}}),
    part("gaussian_blur", {{"kernel", 61}, {"sigma", ConfigNode::list({ConfigNode(3.0), ConfigNode(30.0)})}}),
    part("random_erasing", {{"p", 0.8}})};

}  // namespace

TEST_CASE("each transform alone gives the host's bits, for gray, colour and alpha") {
  for (const int64_t channels : {1, 3, 4})
    for (const auto& one : kEach) {
      CAPTURE(channels);
      check_equal(some_images(channels), {one});
    }
  check_equal(some_images(), {part("normalize")});
  check_equal(some_images(), {});
}

TEST_CASE("chains give the host's bits, in either memory format and from any number of workers") {
  const std::vector<PartConfig> chain = {part("random_crop", {{"size", 20}, {"padding", 4}}),
                                         part("horizontal_flip"),
                                         part("random_rotation", {{"degrees", 40}}),
                                         part("color_jitter", {{"brightness", 0.4}, {"contrast", 0.4}, {"saturation", 0.4}, {"hue", 0.3}}),
                                         part("gaussian_blur", {{"kernel", 3}}),
                                         part("random_erasing"),
                                         part("normalize")};
  check_equal(some_images(), chain);
  check_equal(some_images(), chain, {.num_workers = 2, .channels_last = true, .seed = 8});
  check_equal(some_images(), {chain[3], chain[2], chain[3], chain[1], chain[1], chain[4], chain[0], chain[6]});
  check_equal(some_images(3, 1, 1),
              {part("gaussian_blur", {{"kernel", 5}}), part("horizontal_flip"), part("color_jitter"), part("normalize")});
}

TEST_CASE("steps that size images run on the host, with the steps before them, and draw first") {
  const auto tail = [](std::vector<PartConfig> first) {
    for (const auto& p : {part("horizontal_flip"), part("color_jitter"), part("normalize")}) first.push_back(p);
    return first;
  };
  check_equal(some_images(), tail({part("horizontal_flip"), part("resize", {{"size", 14}})}));
  check_equal(some_images(3, 16, 16), tail({part("rand_augment"), part("random_resized_crop")}));
  const auto pipeline = chain_of(tail({part("rand_augment"), part("random_resized_crop")}));
  const auto split = split_for_device(pipeline, 3, {16, 16});  // the crop does not change the size, but is random
  CHECK(split.host_steps == 2);
  CHECK(where_it_runs(pipeline, split) ==
        "on the host: rand_augment, random_resized_crop; on the device: horizontal_flip, color_jitter, normalize");
  // A resize to the existing size does nothing.
  CHECK(split_for_device(chain_of({part("horizontal_flip"), part("resize"), part("normalize")}), 3, {16, 16}).host_steps == 0);
  CHECK(split_for_device(chain_of({part("horizontal_flip"), part("resize"), part("normalize")}), 3, {20, 20}).host_steps == 2);
  CHECK(split_for_device(chain_of({part("resize", {{"size", 20}}), part("center_crop")}), 3, {-1, -1}).host_steps == 2);
}

TEST_CASE("files of different sizes: decoded and sized by the host") {
  class Files final : public ImageDataset {
   public:
    int64_t size() const override { return 6; }
    LabelledImage image(int64_t i) const override {
      return {{}, i % 2 == 0 ? to_jpeg(ramp(40 + i, 50)) : to_png(i == 3 ? rough(30, 33, 1) : rough(30, 33)), i % 2};
    }
    DatasetInfo info() const override { return info_of("files", 2, {3, -1, -1}); }
  };
  check_equal(std::make_shared<Files>(),
              {part("random_resized_crop"), part("horizontal_flip"), part("random_rotation"), part("normalize")});
  check_equal(std::make_shared<Files>(), {part("resize", {{"size", 24}}), part("center_crop"), part("normalize")});
}

TEST_CASE("mixup, cutmix and both, after the transforms, with padding apart") {
  const std::vector<PartConfig> chain = {part("random_crop", {{"size", 20}, {"padding", 4}}), part("color_jitter"), part("normalize")};
  for (const auto& [mixup, cutmix] : {std::pair{0.4, 0.0}, {0.0, 1.0}, {0.3, 0.8}})
    for (const auto last : {LastBatch::Keep, LastBatch::Pad}) {
      CAPTURE(mixup);
      CAPTURE(cutmix);
      const auto hook = mix_batches({mixup, cutmix, 4, 9});
      check_equal(some_images(), chain, {.last_batch = last, .seed = 9, .finish = hook});
      check_equal(some_images(), chain, {.last_batch = last, .channels_last = true, .seed = 9, .finish = hook});
    }
  const auto wrong = mix_batches({0.4, 0, 3, 9});
  Loader loader(some_images(), chain_of(chain), {.batch_size = 11, .augment_on_device = true, .finish = wrong});
  loader.begin_epoch(0);
  CHECK(has(error_of([&] { loader.next(); }).what(), "a label is 3; allowed: 0 to 2"));  // on the host, before the device sees it
}

TEST_CASE("an image depends on seed, epoch and its number, also in the middle of an epoch") {
  const auto pipeline = chain_of({part("random_crop", {{"size", 16}}), part("color_jitter"), part("normalize")});
  const auto given = [&](uint64_t seed, int64_t epoch, int64_t batch) {
    Loader loader(some_images(), pipeline, {.batch_size = 4, .augment_on_device = true, .seed = seed});
    loader.begin_epoch(epoch, batch);
    return loader.next()->finished().input();
  };
  const auto all = batches(some_images(), pipeline, {.augment_on_device = true, .seed = 1});
  Loader resumed(some_images(), pipeline, {.batch_size = 4, .shuffle = true, .augment_on_device = true, .seed = 1});
  resumed.begin_epoch(1, 2);
  CHECK(at::equal(resumed.next()->finished().input(), all[5].input()));
  CHECK(at::equal(given(1, 0, 0), given(1, 0, 0)));
  CHECK_FALSE(at::equal(given(1, 0, 0), given(2, 0, 0)));
  CHECK_FALSE(at::equal(given(1, 0, 0), given(1, 1, 0)));
}

TEST_CASE("a transform of one's own with a form for devices") {
  class BatchInvert final : public DeviceForm {
   public:
    int64_t floats() const override { return 1; }
    void draw(Philox& rng, float* floats, int32_t* /*integers*/) const override { *floats = rng.uniform(); }
    at::Tensor apply(at::Tensor pixels, const at::Tensor& floats, const at::Tensor& integers) const override {
      CHECK(!integers.defined());
      return at::where(floats.lt(0.5).view({-1, 1, 1, 1}), pixels.neg().add_(255), pixels);
    }
  };
  class Invert : public Transform {
   public:
    Image apply(Image image, Philox& rng) const override { return rng.uniform() < 0.5f ? solarize(std::move(image), 0) : image; }
    std::shared_ptr<const DeviceForm> device_form(int64_t, ImageSize) const override { return std::make_shared<BatchInvert>(); }
  };
  const Pipeline pipeline({std::make_shared<HorizontalFlip>(), std::make_shared<Invert>()});
  const auto host = batches(some_images(), pipeline, {.seed = 2}),
             there = batches(some_images(), pipeline, {.augment_on_device = true, .seed = 2});
  for (size_t i = 0; i < host.size(); ++i) CHECK(at::equal(host[i].input(), there[i].input()));

  class NoForm final : public Invert {
    std::shared_ptr<const DeviceForm> device_form(int64_t, ImageSize) const override { return nullptr; }
  };
  CHECK(has(error_of([] {
              split_for_device(Pipeline({std::make_shared<HorizontalFlip>(), std::make_shared<NoForm>()}), 3, {8, 8});
            }).what(),
            "'transform 2' is not implemented"));
}

TEST_CASE("what cannot be is refused by name") {
  const auto refusal = [](const std::vector<PartConfig>& parts, ImageSize in = {20, 26}) {
    const auto error = error_of([&] { split_for_device(chain_of(parts), 3, in); });
    CHECK(error.kind() == ErrorKind::Usage);
    return std::string(error.what());
  };
  const auto named = refusal({part("horizontal_flip"), part("rand_augment"), part("normalize")});
  CHECK(has(named, "[data.augment_on]"));
  CHECK(has(named, "'rand_augment' is not implemented"));
  CHECK(has(named, "color_jitter"));
  CHECK(has(named, "data.augment_on=host"));
  CHECK(has(refusal({part("resize", {{"size", 20}}), part("normalize")}, {-1, -1}), "does not give the size of its images"));
  const auto tensors = std::make_shared<TensorDataset>(at::zeros({4, 3, 8, 8}, at::kByte), at::zeros({4}, at::kLong));
  CHECK(has(error_of([&] { Loader(tensors, Pipeline(), {.augment_on_device = true}); }).what(), "provides tensors"));
  // The error comes before anything is read or made.
  const auto options = "train_size: 8\nval_size: 8\nbatch_size: 4\naugment_on: device\ntrain_transforms: [rand_augment, normalize]";
  CHECK(has(error_of([&] {
              builtin_datasets().make({"generated", parse_yaml(options, "t"), {}}, "data", builtin_transforms());
            }).what(),
            "rand_augment"));
  CHECK(has(error_of([] {
              builtin_datasets().make({"generated", parse_yaml("augment_on: gpu", "t"), {}}, "data", builtin_transforms());
            }).what(),
            "device"));

  const DeviceAugment augment({}, {8, 8}, {1, 1, 1, 1}, {});
  CHECK(error_of([&] { augment.finish(Batch(at::zeros({2, 3, 8, 8}), {}), false); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { augment.finish(Batch(at::zeros({2, 3, 8, 9}, at::kByte), {}), false); }).kind() == ErrorKind::Usage);
  // A data set whose images differ in size from the declared size.
  class Liar final : public ImageDataset {
   public:
    int64_t size() const override { return 1; }
    LabelledImage image(int64_t) const override { return {ramp(9, 8), {}, 0}; }
    DatasetInfo info() const override { return info_of("liar", 1, {3, 8, 8}); }
  };
  Loader loader(std::make_shared<Liar>(), Pipeline(), {.augment_on_device = true});
  loader.begin_epoch(0);
  const auto error = error_of([&] { loader.next(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "3 x 9 x 8"));
}

TEST_CASE("the data sets' own chains by name, for training and for validation") {
  const auto given = [](const std::string& where) {
    const auto options = "train_size: 24\nval_size: 10\nbatch_size: 8\nnum_workers: 0\ncutmix_alpha: 1\naugment_on: " + where;
    const auto pair = builtin_datasets().make({"generated", parse_yaml(options, "t"), {}}, "data", builtin_transforms());
    Loader train = train_loader(pair, {.seed = 4}), val = val_loader(pair, {.seed = 4});
    std::vector<Batch> out;
    for (Loader* loader : {&train, &val}) {
      loader->begin_epoch(0);
      while (auto batch = loader->next()) out.push_back(batch->finished());
    }
    return out;
  };
  const auto host = given("host"), device = given("device");
  REQUIRE(host.size() == 5);
  REQUIRE(device.size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(at::equal(host[i].input(), device[i].input()));
    CHECK(at::equal(host[i].target(), device[i].target()));
  }
}
