#include "testing.hpp"

#include "npu_train/engine/weights.hpp"

#include <fstream>

#include <torch/nn.h>

#include "npu_train/engine/predictor.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("weights of a wider or a deeper network are not taken for this one's") {
  TempDir dir;
  const auto file = (dir / "w.safetensors").string();
  auto to = resnet(50, {.num_classes = 5});
  const auto before = to.module->parameters()[0].clone();
  // Weights like those of wide_resnet50_2: the inner convolutions of every block have twice the channels, but all names are resnet50's.
  NamedTensors wide;
  for (const auto& [name, tensor] : named_state(*resnet(50, {.num_classes = 1000}).module)) {
    auto sizes = tensor.sizes().vec();
    const bool block = name.starts_with("layer") && name.find("downsample") == std::string::npos;
    const bool last = name.find("conv3") != std::string::npos, last_norm = name.find("bn3") != std::string::npos;
    if (block && !sizes.empty() && !last && !last_norm) sizes[0] *= 2;
    if (block && sizes.size() == 4 && (last || name.find("conv2") != std::string::npos)) sizes[1] *= 2;
    wide.emplace_back(name, torch::ones(sizes, tensor.options()));
  }
  save_safetensors(file, wide);
  for (const bool deeper : {false, true}) {
    CAPTURE(deeper);
    if (deeper) save_safetensors(file, named_state(*resnet(101, {.num_classes = 5}).module));
    const auto error = error_of([&] { load_weights_file(to, file); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    for (const char* part : {"w.safetensors", "another network",
                             deeper ? "tensors of layers that the model does not have: layer3.6."
                                    : "layer1.0.conv1.weight [64, 64, 1, 1] here, [128, 64, 1, 1] in the file"})
      CHECK(has(error.what(), part));
    CHECK(torch::equal(to.module->parameters()[0], before));
    CHECK(error_of([&] { Predictor::from_weights("resnet50", 5, file, "cpu"); }).kind() == ErrorKind::Checkpoint);
  }
  CHECK_FALSE(load_weights_file(to, file, {.strict = false}).fits());
  CHECK_FALSE(torch::equal(to.module->parameters()[0], before));
}

TEST_CASE("weights come from safetensors and from a checkpoint; other files are refused") {
  TempDir dir;
  auto from = resnet(18, {.num_classes = 5}), to = resnet(18, {.num_classes = 5});
  const auto tensors = named_state(*from.module);
  save_safetensors(dir / "w.safetensors", tensors);
  CHECK(load_weights_file(to, (dir / "w.safetensors").string()).complete());
  CHECK(torch::equal(from.module->parameters()[0], to.module->parameters()[0]));

  RunState state;
  for (const auto& [name, tensor] : tensors) state["model"].tensors[name] = tensor.detach() + 1;
  save_checkpoint((dir / "c").string(), state, {}, ConfigNode::map());
  CHECK(load_weights_file(to, (dir / "c").string()).complete());
  CHECK(torch::equal(from.module->parameters()[0] + 1, to.module->parameters()[0]));

  std::filesystem::copy_file(std::filesystem::path(NPU_TRAIN_SOURCE_DIR) / "tests/io/fixtures/training2.ckpt", dir / "w.CKPT");
  CHECK(read_weights_file((dir / "w.CKPT").string()).size() == 4);
  std::ofstream(dir / "w.txt") << "no weights";
  CHECK(error_of([&] { read_weights_file((dir / "w.txt").string()); }).kind() == ErrorKind::Data);
  CHECK(error_of([&] { read_weights_file((dir / "none.pth").string()); }).kind() == ErrorKind::Data);
  std::ofstream(dir / "w.pth") << "no zip";
  CHECK(error_of([&] { read_weights_file((dir / "w.pth").string()); }).kind() == ErrorKind::Checkpoint);
}
