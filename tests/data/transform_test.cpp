#include "testing.hpp"

#include "npu_train/data/transform.hpp"

#include <cmath>

#include "images.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/data/image_transforms.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {
const TransformContext kContext{24, {0.5, 0.4, 0.3}, {0.2, 0.25, 0.5}};
Pipeline chain(std::vector<PartConfig> parts) { return Pipeline::from_config(parts, "data.train_transforms", kContext); }
}  // namespace

TEST_CASE("a chain from names: sizes and statistics left open are the data set's") {
  const Pipeline pipeline = chain({part("resize"), part("center_crop", {{"size", 20}}), part("normalize")});
  CHECK(pipeline.output_size({40, 50}) == ImageSize{20, 20});
  const Image image = rough(30, 40);
  Philox rng(0);
  const at::Tensor out = pipeline.run_to_tensor({image, {}, 0}, "", rng);
  const Image bytes = CenterCrop(20).apply(resize(image, 24, 32), rng);
  for (int c = 0; c < 3; ++c) {
    const double expected = (bytes.at(c, 3, 4) / 255.0 - kContext.mean[c]) / kContext.std[c];
    CHECK(std::abs(out[c][3][4].item<double>() - expected) < 1e-5);
  }
}

TEST_CASE("numbers of normalize win over the data set's; without normalize values are in [0, 1]") {
  Philox rng(0);
  const Image image = rough(4, 4);
  const auto half = chain({part("normalize", {{"mean", ConfigNode::list({0.5})}, {"std", ConfigNode::list({0.5})}})});
  CHECK(std::abs(half.run_to_tensor({image, {}, 0}, "", rng)[2][1][1].item<double>() - (image.at(2, 1, 1) / 255.0 - 0.5) / 0.5) < 1e-6);
  CHECK(std::abs(Pipeline().run_to_tensor({image, {}, 0}, "", rng)[2][1][1].item<double>() - image.at(2, 1, 1) / 255.0) < 1e-6);
}

TEST_CASE("errors in a chain are named") {
  const Error unknown = error_of([] { chain({part("centre_crop")}); });
  CHECK(unknown.kind() == ErrorKind::Usage);
  CHECK(std::string(unknown.what()).find("center_crop") != std::string::npos);
  CHECK(error_of([] { chain({part("random_crop", {{"size", -3}})}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { chain({part("normalize"), part("horizontal_flip")}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { chain({part("color_jitter", {{"hue", 0.7}})}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { chain({part("random_resized_crop", {{"scale", ConfigNode::list({0.5})}})}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { Pipeline({}, {{0.5}, {0.0}}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { Pipeline::from_config({part("center_crop")}, "x", {}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("every built-in transform runs, keeps the size it promises and depends on its generator alone") {
  for (const auto& name : builtin_transforms().names()) {
    CAPTURE(name);
    const Pipeline pipeline = chain({part(name)});
    bool varied = false;
    for (const Image& image : {rough(30, 30), rough(30, 30, 1)}) {
      const ImageSize size = pipeline.output_size({30, 30});
      for (uint64_t i = 0; i < 20; ++i) {
        Philox a = sample_rng(1, 2, static_cast<int64_t>(i)), b = sample_rng(1, 2, static_cast<int64_t>(i));
        const Image first = pipeline.run_to_bytes({image, {}, 0}, "", a), second = pipeline.run_to_bytes({image, {}, 0}, "", b);
        CHECK(ImageSize{first.height(), first.width()} == size);
        CHECK(values(first) == values(second));
        varied |= values(first) != values(image);
      }
    }
    CHECK(varied == (name != "normalize"));
  }
}

TEST_CASE("the generator of a sample differs by seed, epoch and index") {
  const auto first = [](uint64_t seed, int64_t epoch, int64_t index) { return sample_rng(seed, epoch, index)(); };
  CHECK(first(1, 2, 3) == first(1, 2, 3));
  CHECK(first(1, 2, 3) != first(2, 2, 3));
  CHECK(first(1, 2, 3) != first(1, 3, 3));
  CHECK(first(1, 2, 3) != first(1, 2, 4));
}

TEST_CASE("a file goes through the same chain as its pixels") {
  const Image image = ramp(60, 80);
  const Pipeline pipeline =
      chain({part("resize"), part("random_crop", {{"size", 16}}), part("color_jitter"), part("random_rotation"), part("normalize")});
  Philox a(4), b(4);
  CHECK(pipeline.run_to_tensor({{}, to_png(image), 0}, "ramp.png", a).equal(pipeline.run_to_tensor({image, {}, 0}, "", b)));
  Philox rng(1);
  CHECK(values(Pipeline().run_to_bytes({{}, to_png(image), 0}, "ramp.png", rng)) == values(image));
}
