#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "../cli.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/live_bytes.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/nn/summary.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> words;
  std::string what = "step", model, precision, device;
  int64_t image = 0, batch = 0, steps = 8, warmup = 2, threads = 0;
  bool json = false, activations = false;
};

constexpr int64_t kDefaultBatch = 32;

struct Times {
  double first_step = 0;
  int64_t activation_bytes = -1;
  std::vector<double> steps;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Seconds since the kernel started this process: loading libraries counts too.
double since_process_start() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;
  double up = 0;
  uptime >> up;
  return up - std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

RunConfig read_config(const BenchArguments& args, const Parts& parts) {
  auto [file, overrides] = split_words(args.words);
  if (!args.model.empty()) {
    overrides.insert(overrides.begin(), "model={name: " + args.model + "}");  // words with model.KEY=VALUE add to it
    overrides.push_back("model.name=" + args.model);
  }
  if (!args.precision.empty()) overrides.push_back("precision=" + args.precision);
  if (!args.device.empty()) overrides.push_back("device=" + args.device);
  if (args.threads > 0) overrides.push_back("trainer.threads=" + std::to_string(args.threads));
  if (args.batch > 0) overrides.push_back("data.batch_size=" + std::to_string(args.batch));
  ConfigNode node = file.empty() ? ConfigNode::map() : load_yaml(file);
  if (file.empty()) {
    const bool vit = args.model.starts_with("vit");
    node.set("optimizer", vit ? ConfigNode{{"name", "adamw"}, {"lr", 1e-3}, {"weight_decay", 0.05}}
                              : ConfigNode{{"name", "sgd"}, {"lr", 0.01}, {"momentum", 0.9}, {"weight_decay", 1e-4}});
    node.set("data.name", ConfigNode("generated"));
  }
  for (const auto& text : overrides) apply_override(node, text);
  if (args.image > 0) node.set("model.image_size", ConfigNode(args.image));
  auto config = bind_config(node, parts);
  config.output.dir = "";
  return config;
}

/// Host or device bytes that a forward and backward pass need at once beside parameters, gradients and optimizer: what is kept for the
/// backward pass, and what operators need meanwhile. The gradients are there before.
int64_t activation_bytes(const TrainLoop& loop, const Batch& batch) {
  const auto& parts = loop.parts();
  const auto pass = [&] {
    const auto scope = parts.precision->forward_scope();
    parts.task->training_step(parts.precision->cast_input(batch)).loss.backward();
  };
  pass();
  int64_t peak = 0;
  if (parts.device.is_cpu()) {
    const LiveBytes live;
    pass();
    peak = live.peak();
  } else {
    const auto& backend = backend_of(parts.device);
    backend.reset_peak(parts.device);
    const int64_t before = backend.memory(parts.device).allocated;
    pass();
    peak = before < 0 ? -1 : backend.memory(parts.device).peak - before;  // -1: the device's allocator does not tell
  }
  parts.task->parameters().zero_grad();
  return peak;
}

/// Random pictures, one batch again and again: the step alone.
Times time_steps(Trainer& trainer, int64_t batch_size, const BenchArguments& args) {
  // a data set that says nothing of pictures or classes
  trainer.setup(nullptr, std::make_shared<TensorDataset>(at::zeros({batch_size, 1}), at::zeros({batch_size})));
  const auto& model = trainer.model();
  const auto size = model.image_size;
  at::manual_seed(static_cast<uint64_t>(trainer.config().seed));  // so that two runs can be compared
  Batch batch(at::randn({batch_size, model.channels, size, size}), at::randint(model.num_classes, {batch_size}, at::kLong));
  if (trainer.loop().parts().train_loader->options().channels_last)
    batch.set("input", batch.input().contiguous(at::MemoryFormat::ChannelsLast));
  const auto& device = trainer.loop().parts().device;
  Times times;
  if (args.activations) times.activation_bytes = activation_bytes(trainer.loop(), to_device(batch, device));
  for (int64_t i = 0; i < args.warmup + args.steps; ++i) {
    const auto start = now();
    trainer.train_step(batch);
    backend_of(device).synchronize(device);
    if (i == 0) times.first_step = since_process_start();
    if (i >= args.warmup) times.steps.push_back(now() - start);
  }
  return times;
}

/// The whole loop on the configuration's data.
Times time_training(Trainer& trainer, const BenchArguments& args) {
  struct Watch final : Callback {
    Times times;
    int64_t seen = 0, warmup = 0;
    void on_step_end(TrainLoop&, const StepReport& report) override {
      if (seen++ == 0) times.first_step = since_process_start();
      if (seen > warmup) times.steps.push_back(report.seconds);
    }
  };
  auto watch = std::make_shared<Watch>();
  watch->warmup = args.warmup;
  trainer.add_callback(watch);
  trainer.fit();
  return watch->times;
}

/// The training data's pipeline and loader alone. The first epoch (files into the page cache, workers started) does not count.
int bench_data(const BenchArguments& args, const RunConfig& config, const Parts& parts) {
  check(!config.data.name.empty(), ErrorKind::Usage, "bench", "no data; give CONFIG or data.name=...");
  const auto data = parts.datasets.make(config.data, "data");
  auto loader = train_loader(data, {.seed = static_cast<uint64_t>(config.seed)});
  int64_t images = 0;
  double seconds = 0;
  for (int64_t epoch = 0; epoch < 2 || seconds < 1; ++epoch) {
    if (epoch == 1) images = 0, seconds = 0;
    const auto start = now();
    loader.begin_epoch(epoch);
    while (const auto batch = loader.next()) images += batch->size;
    seconds += now() - start;
    check(images > 0, ErrorKind::Data, "bench", "the data gave no batch");
  }
  const double rate = static_cast<double>(images) / seconds;
  char text[200];
  std::snprintf(text, sizeof text, "data %s: %.0f img/s\n", config.data.name.c_str(), rate);
  print(args.json,
        Json::object({{"what", args.what},
                      {"data", config.data.name},
                      {"workers", loader.options().num_workers},
                      {"batch", loader.options().batch_size},
                      {"images", images},
                      {"img_per_s", rate}}),
        text);
  return 0;
}

int report(const BenchArguments& args, Trainer& trainer, Times times) {
  check(!times.steps.empty(), ErrorKind::Usage, "bench", "the run ended before ", args.warmup + 1, " steps");
  std::sort(times.steps.begin(), times.steps.end());
  const auto& model = trainer.model();
  const auto batch = trainer.data().options.batch_size;
  const double median = times.steps[times.steps.size() / 2], fastest = times.steps.front();
  int64_t parameters = 0;
  for (const auto& p : trainer.task().parameters()) parameters += p.value.numel();
  const auto& device = trainer.loop().parts().device;
  const auto peak = device.is_cpu() ? host_peak_rss() : backend_of(device).memory(device).peak;
  auto document = Json::object({{"what", args.what},
                                {"model", model.name},
                                {"image", model.image_size},
                                {"batch", batch},
                                {"precision", trainer.loop().parts().precision->name()},
                                {"device", device.str()},
                                {"steps", static_cast<int64_t>(times.steps.size())},
                                {"img_per_s", static_cast<double>(batch) / median},
                                {"step_ms_median", 1e3 * median},
                                {"step_ms_min", 1e3 * fastest},
                                {"first_step_s", times.first_step},
                                {"peak_rss_mb", static_cast<double>(peak) / (1 << 20)},
                                {"parameters", parameters},
                                {"flops_per_image", flops_per_sample(model)}});
  if (times.activation_bytes >= 0) document.set("activations_mb", static_cast<double>(times.activation_bytes) / (1 << 20));
  char text[512];
  std::snprintf(text, sizeof text, "%s %s: %.2f img/s, step %.2f ms (min %.2f), first step after %.2f s, peak %.0f MB", args.what.c_str(),
                model.name.c_str(), static_cast<double>(batch) / median, 1e3 * median, 1e3 * fastest, times.first_step,
                static_cast<double>(peak) / (1 << 20));
  const auto activations = times.activation_bytes < 0 ? "" : ", activations " + human_bytes(static_cast<double>(times.activation_bytes));
  print(args.json, document, text + activations + "\n");
  return 0;
}

int bench(const BenchArguments& args) {
  check(args.what == "step" || args.what == "train" || args.what == "data", ErrorKind::Usage, "bench", "--what ", args.what,
        "; allowed: step, train, data");
  const auto parts = builtin_parts();
  auto config = read_config(args, parts);
  if (args.what == "data") return bench_data(args, config, parts);
  config.trainer.num_sanity_val_steps = 0;
  config.trainer.check_val_every_n_epoch = 0;
  config.trainer.max_epochs = -1;
  config.trainer.max_time = -1;
  config.trainer.accumulate_grad_batches = 1;
  config.lr_scheduler = {.name = "constant"};  // a curve needs the length of a real run
  config.trainer.max_steps = args.warmup + args.steps;
  int64_t batch_size = kDefaultBatch;
  if (args.what == "step") {
    check(!config.model.name.empty(), ErrorKind::Usage, "bench", "no model; give CONFIG or --model NAME");
    if (const auto* given = config.data.options.find("batch_size")) batch_size = std::stoll(given->scalar());
    config.data = {};  // no data set: only the size of a batch counts
    config.data.options.set("batch_size", ConfigNode(batch_size));
  }
  Trainer trainer(config, parts);
  const auto times = args.what == "step" ? time_steps(trainer, batch_size, args) : time_training(trainer, args);
  return report(args, trainer, times);
}

}  // namespace

void add_bench(CLI::App& app, Command& run) {
  auto args = std::make_shared<BenchArguments>();
  auto* sub = app.add_subcommand("bench", "time training steps on this machine");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]; the flags below win");
  sub->add_option("--what", args->what,
                  "step: random input, no data; train: the whole loop on the configuration's data; data: the loader alone");
  sub->add_option("--model", args->model, "model by name");
  sub->add_option("--image", args->image, "height and width of the pictures");
  sub->add_option("--batch", args->batch, "samples of a step");
  sub->add_option("--precision", args->precision, "as in a configuration");
  sub->add_option("--device", args->device, "as in a configuration");
  sub->add_option("--steps", args->steps, "steps that count")->check(CLI::PositiveNumber);
  sub->add_option("--warmup", args->warmup, "steps before")->check(CLI::PositiveNumber);
  sub->add_option("--threads", args->threads, "CPU threads of operators");
  sub->add_flag("--activations", args->activations,
                "with --what step: also measure what forward and backward need beside parameters, gradients and optimizer");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args] { return bench(*args); }; });
}

}  // namespace npu_train::cli
