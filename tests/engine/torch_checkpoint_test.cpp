#include "testing.hpp"

#include "npu_train/engine/torch_checkpoint.hpp"

#include <algorithm>
#include <fstream>
#include <map>

#include <torch/nn.h>

#include "engine/short_run.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/train/checkpoint.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Finishes a run and returns its folder.
std::string run_in(const TempDir& dir, RunConfig config) {
  config.output.dir = dir.path().string();
  return Trainer(config).fit().run_dir;
}

}  // namespace

TEST_CASE("weights, the optimizer's state by the order of the parameters, and the history") {
  TempDir dir;
  auto config = short_run();
  config.optimizer = {.name = "adamw", .options = {{"lr", 0.01}, {"no_decay", true}}};
  config.trainer.max_epochs = 2;
  const auto run = run_in(dir, config);
  const auto checkpoint = (std::filesystem::path(run) / "checkpoints" / "last").string();
  const auto written = save_torch_checkpoint(checkpoint, (dir / "out").string());
  CHECK(written.epoch == 2);
  CHECK(written.files ==
        std::vector<std::string>{(dir / "out" / "best_model_epoch_2.pth").string(), (dir / "out" / "training_history.pth").string()});

  std::map<std::string, at::Tensor> tensors;
  const auto file = load_pth(written.files[0]);
  for (const auto& [name, value] : file.tensors) tensors[name] = value;
  const auto state = load_checkpoint(checkpoint);
  for (const auto& weight : state.at("model").tensors)
    CHECK_MESSAGE(torch::equal(tensors.at("model_state_dict." + weight.first), weight.second), weight.first);
  // Of the parameters with weight decay, class_token is the first and conv_proj.weight the second; those without come after all of them.
  const auto of = [&](const std::string& slot) { return state.at("optimizer").tensors.at(slot); };
  const auto decayed = 2 + 1 + 4 + 1;  // those two, the positions, four matrices of the block, and the head's
  CHECK(torch::equal(tensors.at("optimizer_state_dict.state.1.exp_avg"), of("exp_avg/conv_proj.weight")));
  CHECK(torch::equal(tensors.at("optimizer_state_dict.state.1.step"), of("step/conv_proj.weight")));
  CHECK(torch::equal(tensors.at("optimizer_state_dict.state." + std::to_string(decayed) + ".exp_avg_sq"), of("exp_avg_sq/conv_proj.bias")));
  CHECK(tensors.size() == state.at("model").tensors.size() + 3 * parameters_of(*Trainer(config).model().module).size());
  for (const char* leaf :
       {"epoch", "best_accuracy", "optimizer_state_dict.param_groups.0.betas.1", "optimizer_state_dict.param_groups.1.weight_decay"})
    CHECK_MESSAGE(std::find(file.skipped.begin(), file.skipped.end(), leaf) != file.skipped.end(), leaf);
  CHECK(load_pth(written.files[1]).skipped == std::vector<std::string>{"train_loss.0", "train_loss.1", "train_acc.0", "train_acc.1",
                                                                       "val_loss.0", "val_loss.1", "val_acc.0", "val_acc.1"});
}

TEST_CASE("a run folder gives its best checkpoint, with the history up to it; a checkpoint elsewhere has none") {
  TempDir dir;
  auto config = short_run();
  config.trainer.max_epochs = 3;
  config.optimizer = {.name = "sgd", .options = {{"lr", 0.05}}};
  config.checkpoint.monitor = "val/loss";
  config.checkpoint.mode = "max";  // so that the first epoch is the best
  const auto run = std::filesystem::path(run_in(dir, config));
  const auto best = read_checkpoint_meta((run / "checkpoints" / "best").string()).epoch;
  const auto written = save_torch_checkpoint(run.string(), (dir / "out").string());
  CHECK(best < 3);
  CHECK(written.epoch == best);
  CHECK(load_pth(written.files[1]).skipped.size() == static_cast<size_t>(4 * best));
  std::filesystem::create_directories(dir / "alone");
  std::filesystem::copy(std::filesystem::canonical(run / "checkpoints" / "best"), dir / "alone" / "checkpoint",
                        std::filesystem::copy_options::recursive);
  const auto alone = save_torch_checkpoint((dir / "alone" / "checkpoint").string(), (dir / "alone" / "out").string());
  CHECK(alone.epoch == best);
  CHECK(alone.files.size() == 1);
}

TEST_CASE("a ViT with split projections is written as torchvision's, with the state of its optimizer") {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    CAPTURE(optimizer);
    TempDir dir;
    auto config = short_run();
    config.optimizer = {.name = optimizer, .options = {{"lr", 0.01}, {"no_decay", true}}};
    config.trainer.max_steps = 3;
    const auto start = make_model(config.model, builtin_parts(), 1);
    save_safetensors(dir / "start.safetensors", named_state(*start.module));
    config.model.options.set("weights", (dir / "start.safetensors").string());
    std::map<std::string, PthFile> files;
    for (const char* qkv : {"fused", "split"}) {
      config.model.options.set("qkv", qkv);
      config.output.name = qkv;
      const auto written = save_torch_checkpoint(run_in(dir, config), (dir / qkv).string());
      files[qkv] = load_pth(written.files[0]);
    }
    const auto &fused = files["fused"], &split = files["split"];
    CHECK(split.skipped == fused.skipped);
    REQUIRE(split.tensors.size() == fused.tensors.size());
    const std::map<std::string, at::Tensor> of_split(split.tensors.begin(), split.tensors.end());
    for (const auto& entry : fused.tensors) {
      CAPTURE(entry.first);
      REQUIRE(of_split.count(entry.first) == 1);
      REQUIRE(of_split.at(entry.first).sizes() == entry.second.sizes());
      // The gradient of a key's bias is 0 except for rounding, which Adam scales to a full step.
      const auto without_key = [&](const at::Tensor& t) {
        return entry.first.ends_with("in_proj_bias") ? at::cat({t.slice(0, 0, 32), t.slice(0, 64)}) : t;
      };
      CHECK(torch::allclose(without_key(of_split.at(entry.first)), without_key(entry.second), 1e-3, 1e-5));
    }
    const auto first_moment = [](const PthFile& file) {
      for (const auto& [name, value] : file.tensors)
        if (name.starts_with("optimizer_state_dict.state.") && value.dim() == 2 && value.size(0) == 96) return value;
      return at::Tensor();
    };
    REQUIRE(first_moment(split).defined());
    CHECK(first_moment(split).abs().max().item<double>() > 0);
  }
}

TEST_CASE("what PyTorch has no counterpart for") {
  TempDir dir;
  auto config = short_run();
  const auto error = [&](RunConfig c) {
    const auto run = run_in(dir, std::move(c));
    return error_of([&] { save_torch_checkpoint(run, (dir / "out").string()); });
  };
  config.optimizer = {.name = "lamb"};
  const auto lamb = error(config);
  CHECK(lamb.kind() == ErrorKind::Usage);
  CHECK(has(lamb.what(), "sgd, adam, adamw"));
  config.optimizer = {.name = "sgd"};
  const auto run = run_in(dir, config);
  std::ofstream(std::filesystem::path(run) / "history.json") << "{";
  CHECK(error_of([&] { save_torch_checkpoint(run, (dir / "out").string()); }).kind() == ErrorKind::Checkpoint);
  CHECK_FALSE(std::filesystem::exists(dir / "out"));
}
