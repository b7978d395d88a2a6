#include "testing.hpp"

#include <ATen/ATen.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "npu_train/base/state.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/memory/out_of_memory.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kCapacity = int64_t{320} << 20, kWide = int64_t{1} << 18;

RunConfig limited_run(const std::string& model, int64_t batch, int64_t accumulate = 1, const std::string& on_oom = "stop") {
  RunConfig c{.device = "sim_npu", .precision = "32-true"};
  c.sim_npu = {.hbm = "320MiB", .unsupported_ops = "ignore"};
  c.model = {.name = model, .options = {}};
  if (model == "resnet18") c.model.options = {{"stem", "imagenet"}};
  if (model == "vit_tiny") c.model.options = {{"depth", 3}, {"image_size", 32}, {"patch_size", 4}, {"dropout", 0.1}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 8}, {"val_batch_size", 8}, {"num_workers", "0"}}};
  c.data.options.set("batch_size", ConfigNode(batch));
  if (model == "resnet18") c.data.options.set("image_size", ConfigNode(96));  // activations that outweigh the gradients
  c.optimizer = {.name = "sgd", .options = {{"lr", 0.01}, {"momentum", 0.9}}};
  c.trainer = {.max_epochs = 1, .accumulate_grad_batches = accumulate, .threads = 1, .on_oom = on_oom};
  c.output.dir = "";
  return c;
}

Parts with_report() {
  auto parts = builtin_parts();
  add_memory_report(parts);
  return parts;
}

// Fills the device until a window of two micro-batches of `micro` samples still fits, but one micro-batch of twice the size does not.
at::Tensor filler(const std::string& model, int64_t micro) {
  const auto in_two = measure_memory(limited_run(model, micro, 2)).peak(micro).allocated;
  const auto whole = measure_memory(limited_run(model, micro)).peak(2 * micro).allocated;
  REQUIRE(in_two < whole);
  const auto bytes = kCapacity - (in_two + whole) / 2;
  REQUIRE(bytes > 0);
  return at::empty({bytes / 4}, at::TensorOptions(Device{"sim_npu", 0}.c10()));
}

uint64_t trained_state(Trainer& trainer) {
  State out;
  const auto state = trainer.state();
  for (const char* part : {"model", "optimizer", "rng"})
    for (const auto& [name, tensor] : state.at(part).tensors) out.tensors[std::string(part) + "/" + name] = tensor;
  return digest(out);
}

// Computes y = x w from inputs that outweigh everything else: 1 MiB a sample.
class WideTask final : public Task {
 public:
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    const auto outputs = predict(batch.input());
    return {at::mse_loss(outputs, batch.target()), batch.weight, outputs};
  }
  at::Tensor predict(const at::Tensor& input) override { return input.matmul(weight_); }
  ParameterSet parameters() override {
    ParameterSet out;
    out.add({.name = "weight", .value = weight_});
    return out;
  }
  void set_training(bool) override {}
  void to(c10::Device device) override { weight_.set_data(weight_.detach().to(device)); }

 private:
  at::Tensor weight_ = at::full({kWide}, 0.01).requires_grad_();
};

// Fills the device until only `free` bytes are left.
at::Tensor all_but(int64_t free) {
  const auto allocated = backend_of({"sim_npu", 0}).memory({"sim_npu", 0}).allocated;
  return at::empty({(kCapacity - allocated - free) / 4}, at::TensorOptions(Device{"sim_npu", 0}.c10()));
}

std::string said_by(const std::function<void()>& fn) {
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += std::string(text) + "\n"; });
  fn();
  return said;
}

}  // namespace

TEST_CASE("retry: from too large a batch the run is bit for bit the one that begins with smaller micro-batches") {
  for (const std::string model : {"vit_tiny", "resnet18"}) {  // one has dropout, the other BatchNorm
    CAPTURE(model);
    const int64_t micro = 16;
    const auto full = filler(model, micro);
    RunResult expected;
    uint64_t begun_small = 0;
    {
      Trainer trainer(limited_run(model, micro, 2), with_report());
      expected = trainer.fit();
      begun_small = trained_state(trainer);
    }
    Trainer retried(limited_run(model, 2 * micro, 1, "retry"), with_report());
    RunResult result;
    const auto said = said_by([&] { result = retried.fit(); });
    CHECK(has(said, "out of memory in the "));
    CHECK(has(said, "in micro-batches of " + std::to_string(micro) + "; to begin so: data.batch_size=" + std::to_string(micro) +
                        " trainer.accumulate_grad_batches=2"));
    CHECK(result.global_step == expected.global_step);
    CHECK(scalar_or(result.history[0].train, "loss", -1) == scalar_or(expected.history[0].train, "loss", -2));
    CHECK(trained_state(retried) == begun_small);
    CHECK(retried.loop().micro_batch_limit() == micro);
  }
}

TEST_CASE("retry in the middle of an epoch; the checkpoint continues with the micro-batches of the run") {
  struct Hog final : Callback {
    void on_step_end(TrainLoop& loop, const StepReport& report) override {
      if (report.global_step != 2) return;
      const auto free = kCapacity - backend_of(loop.parts().device).memory(loop.parts().device).allocated;
      tensor = at::empty({(free - need) / 4}, at::TensorOptions(loop.parts().device.c10()));
    }
    at::Tensor tensor;
    int64_t need = 0;
  };
  const auto model = measure_memory(limited_run("vit_tiny", 4, 2));
  const auto hog = std::make_shared<Hog>();
  const auto between_steps = 2 * model.peak(2).allocated - model.peak(4).allocated;
  hog->need = (model.peak(16).allocated + model.peak(32).allocated) / 2 - between_steps;
  TempDir dir;
  auto config = limited_run("vit_tiny", 32, 1, "retry");
  config.data.options.set("train_size", ConfigNode(int64_t{128}));
  config.trainer.max_epochs = 2;
  config.output.dir = dir.path().string();
  Trainer trainer(config, with_report());
  trainer.add_callback(hog);
  RunResult result;
  const auto said = said_by([&] { result = trainer.fit(); });
  CHECK_MESSAGE(has(said, "micro-batches of 16;"), said);
  CHECK(result.global_step == 8);
  CHECK(result.batches_seen == 8);  // counts the loader's batches
  hog->tensor.reset();
  CHECK(load_checkpoint(result.last_checkpoint, {"loop"}).at("loop").integer("micro_batch_limit", "") == 16);
  Trainer resumed(config, with_report());
  resumed.resume("last");
  CHECK(resumed.loop().micro_batch_limit() == 16);
}

TEST_CASE("stop: the error names place, sizes, layers and changes that fit, and the changes do fit") {
  TempDir dir;
  const int64_t micro = 16;
  const auto full = filler("vit_tiny", micro);
  auto config = limited_run("vit_tiny", 2 * micro);
  config.output.dir = dir.path().string();
  auto trainer = std::make_optional<Trainer>(config, with_report());
  trainer->setup();
  const auto error = error_of([&] { trainer->fit(); });
  CHECK(error.exit_code() == 8);
  const std::string text = error.what();
  const auto overrides = "data.batch_size=" + std::to_string(micro) + " trainer.accumulate_grad_batches=2";
  for (const std::string& part :
       {std::string("out of memory in the "), " of micro-batch 1 of 1 of " + std::to_string(2 * micro) + " samples at ",
        std::string(" more were requested; tensors use "), std::string(" of 320.0 MiB"), std::string("parameters "),
        std::string("optimizer state "), std::string("activations "),
        std::string("fragmentation: none, because the simulator counts only tensors; a simulated caching allocator would hold "),
        std::string("with gaps of "), std::string("the last layers"), std::string("Linear"), overrides,
        std::string("trainer.gradient_checkpointing=blocks"), std::string("precision=bf16-mixed"),
        std::string("the cheapest change that would fit is ")})
    CHECK_MESSAGE(has(text, part), "'", part, "' is not in: ", text);
  std::stringstream log;
  log << std::ifstream(fs::path(trainer->run_dir()) / "train.log").rdbuf();
  CHECK(has(log.str(), overrides));
  CHECK(backend_of({"sim_npu", 0}).memory({"sim_npu", 0}).allocated <
        static_cast<int64_t>(full.nbytes()) + (int64_t{16} << 20));  // no tensor of the step is still allocated

  trainer.reset();
  for (int change = 0; change < 3; ++change) {
    CAPTURE(change);
    auto fits = limited_run("vit_tiny", change == 0 ? micro : 2 * micro, change == 0 ? 2 : 1);
    if (change == 1) fits.precision = "bf16-mixed";
    if (change == 2) fits.trainer.gradient_checkpointing = "blocks";
    fits.trainer.max_steps = 2;
    Trainer(fits, with_report()).fit();
  }
}

TEST_CASE("retry ends with the complete report if one sample is too much, and nothing of the window stays") {
  Trainer trainer(limited_run("vit_tiny", 8, 1, "retry"), with_report());
  trainer.setup();
  const auto before = trained_state(trainer);
  const auto free = kCapacity - backend_of({"sim_npu", 0}).memory({"sim_npu", 0}).allocated;
  const auto hog = at::empty({(free - (int64_t{1} << 20)) / 4}, at::TensorOptions(trainer.loop().parts().device.c10()));
  Error error(ErrorKind::Internal, "", "");
  const auto said = said_by([&] {
    error = error_of([&] { trainer.train_step(Batch(at::zeros({8, 3, 32, 32}), at::zeros({8}, at::kLong))); });
  });
  CHECK(error.kind() == ErrorKind::OutOfMemory);
  for (const char* part : {"micro-batches of 4", "micro-batches of 2", "micro-batches of 1"}) CHECK(has(said, part));
  CHECK(has(error.what(), "of micro-batch 1 of 8 of 1 sample"));
  CHECK(has(error.what(), "trainer.on_oom=retry did not help: micro-batches of 1 sample"));
  CHECK(has(error.what(), "smaller micro-batches: not even 1 sample fits"));
  CHECK(has(error.what(), "hint: no change is known to fit, since "));
  CHECK(has(error.what(), "are held by objects outside this run"));
  CHECK_FALSE(has(error.what(), "none of the examined changes would certainly fit"));
  CHECK(trained_state(trainer) == before);
  for (const auto& p : trainer.task().parameters()) CHECK_FALSE(p.value.grad().defined());
}

TEST_CASE("a batch that cannot be copied to the device: with retry it is copied in pieces, bit for bit as a run of such batches") {
  at::manual_seed(1);
  const auto x = at::randn({32, kWide});
  const auto data = std::make_shared<TensorDataset>(x, x.sum(1));
  const auto run = [&](int64_t batch, int64_t accumulate, const std::string& on_oom, int64_t free, std::string* said) {
    RunConfig c{.device = "sim_npu", .precision = "32-true"};
    c.sim_npu = {.hbm = "320MiB", .unsupported_ops = "ignore"};
    c.data.options = {{"batch_size", batch}, {"num_workers", "0"}};
    c.optimizer = {.name = "sgd", .options = {{"lr", 1e-7}, {"momentum", 0.9}}};
    c.trainer = {.max_epochs = 2, .accumulate_grad_batches = accumulate, .threads = 1, .on_oom = on_oom};
    c.output.dir = "";
    Trainer trainer(c, with_report());
    trainer.setup(std::make_shared<WideTask>(), data);
    const auto full = free > 0 ? all_but(free) : at::Tensor();
    const auto text = said_by([&] { trainer.fit(); });
    if (said != nullptr) *said = text;
    return trained_state(trainer);
  };
  const int64_t mib = int64_t{1} << 20;
  std::string said;
  CHECK(run(4, 4, "retry", 12 * mib, &said) == run(4, 4, "stop", 0, nullptr));  // the micro-batches fit unchanged, one at a time
  CHECK_MESSAGE(has(said, "in the copy of micro-batch 3 of 4 to the device: trainer.on_oom=retry leaves windows on the host"), said);
  CHECK(run(16, 1, "retry", 12 * mib, &said) == run(8, 2, "stop", 0, nullptr));
  CHECK_MESSAGE(has(said, "out of memory in the copy to the device of micro-batch 1 of 1"), said);
  CHECK_MESSAGE(has(said, "in micro-batches of 8; to begin so: data.batch_size=8 trainer.accumulate_grad_batches=2"), said);

  // the window fits, but leaves no room for a gradient, however small the micro-batches are
  CHECK(run(16, 1, "retry", 16 * mib + mib / 2, &said) == run(8, 2, "stop", 0, nullptr));
  CHECK_MESSAGE(has(said, "with the batches of the window on the device: trainer.on_oom=retry leaves windows on the host"), said);

  for (const int64_t micro_batches : {1, 4}) {  // the change that the report of such a window advises does fit
    CAPTURE(micro_batches);
    const auto error = error_of([&] { run(16 / micro_batches, micro_batches, "stop", 12 * mib, nullptr); });
    const std::string text = error.what();
    CHECK(error.exit_code() == 8);
    CHECK_MESSAGE(has(text, micro_batches == 1 ? "in the copy to the device of micro-batch 1 of 1 of 16 samples"
                                               : "in the copy to the device of micro-batch 3 of 4 of 4 samples"),
                  text);
    if (micro_batches == 4) CHECK_MESSAGE(has(text, "batch 8.0 MiB"), text);
    const std::string kept = micro_batches == 1 ? "trainer.on_oom=retry data.batch_size=8 trainer.accumulate_grad_batches=2 "
                                                : "trainer.on_oom=retry data.batch_size=4 trainer.accumulate_grad_batches=4 ";
    CHECK_MESSAGE(has(text, kept), text);
    const std::string fewer = micro_batches == 1 ? "data.batch_size=8 " : "data.batch_size=8 trainer.accumulate_grad_batches=1 ";
    CHECK_MESSAGE(has(text, "\n    " + fewer), text);
    CHECK_MESSAGE(has(text, "a different update, with 8 samples instead of 16"), text);
    run(micro_batches == 1 ? 8 : 4, micro_batches == 1 ? 2 : 4, "retry", 12 * mib, nullptr);
    run(8, 1, "stop", 12 * mib, nullptr);
  }
}

TEST_CASE("validation: the report names its batch, and the advice is the validation's and does fit") {
  auto config = limited_run("vit_tiny", 4, 1, "retry");
  config.data.options.set("val_size", ConfigNode(int64_t{256}));
  config.data.options.set("val_batch_size", ConfigNode(int64_t{256}));
  config.trainer.max_steps = 1;
  Trainer(limited_run("vit_tiny", 4)).setup();  // sets the device's capacity
  const auto full = all_but(int64_t{64} << 20);
  for (const bool sanity : {true, false}) {
    CAPTURE(sanity);
    config.trainer.num_sanity_val_steps = sanity ? 1 : 0;
    const std::string text = error_of([&] { Trainer(config, with_report()).fit(); }).what();
    const std::string where =
        sanity ? "batch 1 of the validation before the first step, 256 samples" : "batch 1 of the validation, 256 samples";
    for (const std::string& part :
         {std::string("out of memory in the forward of ") + where, std::string(" more were requested; tensors use "),
          std::string("the last layers"), std::string("data.val_batch_size="), std::string("trainer.limit_val_batches=0"),
          std::string("trainer.on_oom=retry did not help: it repeats only windows of the training"),
          std::string("from forwards of 2 and 3")})
      CHECK_MESSAGE(has(text, part), "'", part, "' is not in: ", text);
    CHECK(has(text, "trainer.num_sanity_val_steps=0") == sanity);
    CHECK_FALSE(has(text, "data.batch_size"));
    const std::string key = "the cheapest change that would fit is data.val_batch_size=";
    REQUIRE(has(text, key));
    auto fits = config;
    fits.data.options.set("val_batch_size", ConfigNode(int64_t{std::stoll(text.substr(text.find(key) + key.size()))}));
    CHECK(Trainer(fits, with_report()).fit().global_step == 1);
  }
}

TEST_CASE("a sanity validation: what only postpones the failure to the training step is no advice") {
  auto config = limited_run("vit_tiny", 32);
  config.data.options.set("val_size", ConfigNode(int64_t{2048}));
  config.data.options.set("val_batch_size", ConfigNode(int64_t{2048}));
  config.trainer.num_sanity_val_steps = 1;
  config.trainer.max_steps = 1;
  {
    Trainer trainer(config, with_report());
    trainer.setup();
    const auto full = all_but(int64_t{4} << 20);  // less than the gradients
    const std::string text = error_of([&] { trainer.fit(); }).what();
    CHECK_MESSAGE(has(text, "of the validation before the first step"), text);
    CHECK_MESSAGE(has(text, "hint: no change is known to fit, since the training step that follows: not even 1 sample fits"), text);
    for (const char* none : {"num_sanity_val_steps", "val_batch_size", "limit_val_batches"}) CHECK_MESSAGE(!has(text, none), text);
  }
  const auto full = filler("vit_tiny", 16);  // training fits in two micro-batches
  const std::string text = error_of([&] { Trainer(config, with_report()).fit(); }).what();
  const std::string key = "the cheapest change that would fit is data.val_batch_size=",
                    step = " data.batch_size=16 trainer.accumulate_grad_batches=2";
  REQUIRE_MESSAGE(has(text, key), text);
  CHECK_MESSAGE(has(text, "trainer.num_sanity_val_steps=0" + step), text);
  const auto advised = text.substr(text.find(key) + key.size());
  CHECK_MESSAGE(advised.find(step) == advised.find(' '), text);
  config.data.options.set("val_batch_size", ConfigNode(int64_t{std::stoll(advised)}));
  config.data.options.set("batch_size", ConfigNode(int64_t{16}));
  config.trainer.accumulate_grad_batches = 2;
  CHECK(Trainer(config, with_report()).fit().global_step == 1);
}

TEST_CASE("a prediction and a setup that do not fit are reported as such") {
  Trainer trainer(limited_run("vit_tiny", 4), with_report());
  const std::string prediction = error_of([&] { trainer.predict(at::zeros({4096, 3, 32, 32})); }).what();
  CHECK_MESSAGE(has(prediction, "of a prediction of 4096 samples"), prediction);
  CHECK_MESSAGE(has(prediction, "the cheapest change that would fit is to predict at most "), prediction);

  const auto full = all_but(int64_t{1} << 20);
  const auto setup = error_of([&] { Trainer(limited_run("vit_tiny", 4, 1, "retry"), with_report()).setup(); });
  CHECK(setup.exit_code() == 8);
  for (const char* part : {"out of memory during setup, while the model was", "tensors use 3", "the model needs: parameters ",
                           "trainer.on_oom=retry did not help: nothing was trained yet", "hint: a smaller model"})
    CHECK_MESSAGE(has(setup.what(), part), "'", part, "' is not in: ", setup.what());
}

TEST_CASE("memory that runs out in a callback is reported as such, with the memory in use on the device") {
  struct Greedy final : Callback {
    void on_step_end(TrainLoop& loop, const StepReport&) override { at::empty({kCapacity}, at::TensorOptions(loop.parts().device.c10())); }
  };
  Trainer trainer(limited_run("vit_tiny", 4), with_report());
  trainer.add_callback(std::make_shared<Greedy>());
  const std::string text = error_of([&] { trainer.fit(); }).what();
  for (const char* part : {"outside of forward, backward and validation", "in use: parameters ", "check your own callbacks"})
    CHECK_MESSAGE(has(text, part), "'", part, "' is not in: ", text);
  CHECK_FALSE(has(text, "data.batch_size"));
}
