#include "testing.hpp"

#include "npu_train/engine/predictor.hpp"

#include <torch/nn.h>

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>
#include <utility>

#include "data/images.hpp"
#include "engine/short_run.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/nn/named_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a checkpoint answers as the trainer did, without its data") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  config.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 32}, {"batch_size", 16}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1};
  config.average = {.enabled = true, .decay = 0.5};
  config.output.dir = dir.path().string();
  Trainer trainer(config);
  const auto result = trainer.fit();
  const auto x = torch::randn({3, 3, 32, 32});
  const auto expected = trainer.predict(x);

  const auto predictor = Predictor::from_checkpoint(result.run_dir, "cpu");
  CHECK(torch::allclose(predictor(x), expected, 1e-4, 1e-5));
  CHECK(predictor.classes().size() == 10);
  const auto answers = predictor.top_answers(expected[0], 3);
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].label == expected[0].argmax().item<int64_t>());
  CHECK(answers[0].name == predictor.classes()[static_cast<size_t>(answers[0].label)]);
  CHECK(answers[0].probability >= answers[1].probability);
  // Any image becomes a square of the model's size.
  write_bytes((dir / "wide.png").string(), to_png(rough(40, 90)));
  CHECK((predictor.read_image((dir / "wide.png").string()).sizes() == at::IntArrayRef({3, 32, 32})));
  CHECK(error_of([&] { predictor.classify((dir / "none.png").string()); }).kind() == ErrorKind::Data);
}

TEST_CASE("a checkpoint of a training with a profiler and a dump answers in a program without them") {
  TempDir dir;
  auto parts = builtin_parts();
  parts.observers.add("profiler", "in place of the profiler", [] { return std::make_unique<RunObserver>(); });
  parts.observers.add_section<NoOptions>("dump", "in place of the dump", [](const NoOptions&) { return std::make_unique<RunObserver>(); });
  auto config = short_run();
  config.trainer.max_steps = 1;
  config.trainer.profiler = "simple";
  config.sections["dump"] = ConfigNode::map();
  config.output.dir = dir.path().string();
  const auto result = Trainer(config, parts).fit();
  CHECK(Predictor::from_checkpoint(result.run_dir, "cpu")(torch::zeros({1, 3, 32, 32})).sizes() == at::IntArrayRef({1, 10}));
}

TEST_CASE("weights that do not fill the model are refused") {
  TempDir dir;
  const auto model = resnet(18, {.num_classes = 5});
  save_safetensors(dir / "w.safetensors", named_state(*model.module));
  const auto file = (dir / "w.safetensors").string();
  CHECK(Predictor::from_weights("resnet18", 5, file, "cpu")(torch::zeros({1, 3, 64, 64})).sizes() == at::IntArrayRef({1, 5}));
  CHECK(error_of([&] { Predictor::from_weights("resnet18", 6, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { Predictor::from_weights("resnet34", 5, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { Predictor::from_checkpoint(dir.path().string(), "cpu"); }).kind() == ErrorKind::Checkpoint);
}

namespace {

/// A network whose outputs depend on every pixel, with the preparation of ImageNet: an image that is not 224 x 224 is resized and cropped.
Predictor predictor_of_random_weights(const TempDir& dir) {
  torch::manual_seed(3);
  const auto model = resnet(18, {.num_classes = 7});
  save_safetensors(dir / "w.safetensors", named_state(*model.module));
  return Predictor::from_weights("resnet18", 7, (dir / "w.safetensors").string(), "cpu");
}

}  // namespace

TEST_CASE("pixels in memory are answered as the file with the same ones, bit for bit") {
  TempDir dir;
  const auto predictor = predictor_of_random_weights(dir);
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{224, 224}, {224, 300}, {61, 90}, {300, 41}};
  for (const auto& [height, width] : sizes) {
    INFO("an image of ", height, " x ", width);
    const Image image = rough(height, width), with_alpha = rough(height, width, 4);
    const auto file = (dir / "a.png").string();
    write_bytes(file, to_png(image));
    const auto expected = predictor(predictor.read_image(file).unsqueeze(0));
    for (const auto order : {ChannelOrder::Rgb, ChannelOrder::Bgr}) {
      for (const int64_t channels : {3, 4}) {  // rows of a cv::Mat are padded where it is a part of another one
        const ProgramPixels pixels(with_alpha, channels, ChannelLayout::Hwc, order, 5);
        CHECK(torch::equal(predictor.preparation().prepare(pixels.view), predictor.read_image(file)));
        CHECK(torch::equal(predictor.predict(pixels.view), expected));
      }
    }
    const ImageView planes{.data = image.plane(0), .height = height, .width = width, .layout = ChannelLayout::Chw};
    CHECK(torch::equal(predictor.predict(planes), expected));
    const auto answers = predictor.classify(planes, 3), of_file = predictor.classify(file, 3);
    REQUIRE(answers.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(answers[i].label == of_file[i].label);
      CHECK(answers[i].probability == of_file[i].probability);
    }
  }
}

TEST_CASE("matrices of Eigen, a decoded JPEG, and a batch of images of different sizes") {
  TempDir dir;
  const auto predictor = predictor_of_random_weights(dir);
  Eigen::Matrix<uint8_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> gray(100, 130);
  const Image pixels = rough(100, 130, 1);
  std::copy_n(pixels.plane(0), pixels.pixels(), gray.data());
  const auto view_of = [](const auto& image) {
    static_assert(std::remove_cvref_t<decltype(image)>::IsRowMajor);  // as docs/add_a_model.md checks it
    return ImageView{.data = image.data(), .height = image.rows(), .width = image.cols(), .channels = 1, .row_stride = image.outerStride()};
  };
  const auto block = gray.block(10, 20, 60, 80);
  write_bytes((dir / "gray.png").string(), to_png(pixels.crop(10, 20, 60, 80)));
  const auto expected = predictor.read_image((dir / "gray.png").string());
  CHECK(torch::equal(predictor.preparation().prepare(view_of(block)), expected));

  const auto jpeg = to_jpeg(rough(90, 70));
  write_bytes((dir / "a.jpg").string(), jpeg);
  const Image decoded = decode_image(jpeg, "a.jpg").dense(PixelOrder::Planar);
  const ImageView view{.data = decoded.plane(0), .height = 90, .width = 70, .layout = ChannelLayout::Chw};
  const auto of_file = predictor.read_image((dir / "a.jpg").string());
  CHECK(torch::equal(predictor.preparation().prepare(view), of_file));

  const auto logits = predictor.predict({view, view_of(block), view_of(gray)});
  CHECK(logits.sizes() == at::IntArrayRef({3, 7}));
  CHECK(torch::equal(logits, predictor(torch::stack({of_file, expected, predictor.preparation().prepare(view_of(gray))}))));
}

TEST_CASE("images in memory that cannot be predicted name their number in the batch") {
  TempDir dir;
  const auto predictor = predictor_of_random_weights(dir);
  const Image image = rough(30, 40);
  const ImageView good{.data = image.plane(0), .height = 30, .width = 40, .layout = ChannelLayout::Chw};
  auto bad = good;
  bad.row_stride = 39;
  const auto one = error_of([&] { predictor.predict(bad); }), third = error_of([&] { predictor.predict({good, good, bad}); });
  for (const auto* error : {&one, &third}) {
    CHECK(error->kind() == ErrorKind::Usage);
    CHECK(has(error->what(), "row_stride is 39, and a row has 40 bytes"));
  }
  CHECK_FALSE(has(one.what(), "image 0"));
  CHECK(has(third.what(), "image 2: "));
  CHECK(error_of([&] { predictor.predict(std::vector<ImageView>{}); }).kind() == ErrorKind::Usage);
}
