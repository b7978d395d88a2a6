#include "testing.hpp"

#include "npu_train/engine/weights.hpp"

#include <fstream>

#include <torch/nn.h>

#include "npu_train/models/resnet.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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

  std::ofstream(dir / "w.txt") << "no weights";
  CHECK(error_of([&] { read_weights_file((dir / "w.txt").string()); }).kind() == ErrorKind::Data);
  CHECK(error_of([&] { read_weights_file((dir / "none.pth").string()); }).kind() == ErrorKind::Data);
  std::ofstream(dir / "w.pth") << "no zip";
  CHECK(error_of([&] { read_weights_file((dir / "w.pth").string()); }).kind() == ErrorKind::Checkpoint);
}
