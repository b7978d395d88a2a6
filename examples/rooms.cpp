// One small example for each room of the library, explained in docs/rooms: rooms [FOLDER for the written files]
#include <torch/nn.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <npu_train/base/state.hpp>
#include <npu_train/core/hash.hpp>
#include <npu_train/core/text.hpp>
#include <npu_train/data/datasets.hpp>
#include <npu_train/data/generated.hpp>
#include <npu_train/device/backend.hpp>
#include <npu_train/dist/strategy.hpp>
#include <npu_train/export/onnx.hpp>
#include <npu_train/io/csv.hpp>
#include <npu_train/io/file.hpp>
#include <npu_train/io/safetensors.hpp>
#include <npu_train/kernels/rounding.hpp>
#include <npu_train/models/resnet.hpp>
#include <npu_train/nn/fuse.hpp>
#include <npu_train/nn/layer_scope.hpp>
#include <npu_train/nn/module_state.hpp>
#include <npu_train/nn/summary.hpp>
#include <npu_train/optim/optimizers.hpp>
#include <npu_train/optim/schedule.hpp>
#include <npu_train/precision/precision.hpp>
#include <npu_train/text/tokenizer.hpp>
#include <npu_train/tools/align/compare.hpp>
#include <npu_train/tools/align/dumper.hpp>
#include <npu_train/tools/analyze/analysis.hpp>
#include <npu_train/tools/analyze/profiler.hpp>
#include <npu_train/tools/analyze/try_device.hpp>
#include <npu_train/tools/bench/samples.hpp>
#include <npu_train/tools/doctor/checks.hpp>
#include <npu_train/tools/launch/launcher.hpp>
#include <npu_train/tools/memory/leak_watch.hpp>
#include <npu_train/tools/memory/memory_prediction.hpp>
#include <npu_train/tools/probe/process_facts.hpp>
#include <npu_train/tools/report/html_page.hpp>
#include <npu_train/tools/report/report.hpp>
#include <npu_train/trace/op_observer.hpp>
#include <npu_train/train/loop.hpp>
#include <npu_train/trainer.hpp>

struct ServerOptions {
  int64_t port = 8080;
  std::string host = "localhost";
  static const npu_train::ConfigTable<ServerOptions>& config_table() {
    static const auto table = npu_train::ConfigTable<ServerOptions>("server")
                                  .field("port", &ServerOptions::port, "port to listen on", npu_train::between(1, 65535))
                                  .field("host", &ServerOptions::host, "name or address");
    return table;
  }
};

void core_room() {
  const auto options = npu_train::bind<ServerOptions>(npu_train::parse_yaml("port: 80", "server.yaml"), "server");
  std::printf("%s:%lld\n", options.host.c_str(), static_cast<long long>(options.port));
  try {
    npu_train::bind<ServerOptions>(npu_train::parse_yaml("{prt: 80, host: [a, b]}", "server.yaml"), "server");
  } catch (const npu_train::Error& error) {
    std::puts(error.what());  // both errors, each with file, line, column, the given and the allowed names
  }
}

void base_room() {
  npu_train::ParameterSet set;
  set.add({.name = "fc.weight", .value = torch::ones({10, 64})});
  set.add({.name = "fc.bias", .value = torch::zeros({10}), .group = 1});
  const auto decayed = set.filter([](const npu_train::Parameter& p) { return p.group == 0; });
  std::printf("%zu of %zu decay, digest %s\n", decayed.size(), set.size(), npu_train::hex64(npu_train::digest(set)).c_str());
}

void io_room(const std::filesystem::path& folder) {
  const auto path = folder / "weights.safetensors";
  npu_train::save_safetensors(path, {{"fc.weight", torch::ones({10, 64})}, {"fc.bias", torch::zeros({10})}});
  const npu_train::SafetensorsFile file(path);  // checks the complete header; tensors are read on request
  for (const auto& name : file.names()) std::printf("%s: %zu dimensions\n", name.c_str(), file.info(name).shape.size());
}

// A tokenizer with the words "the" and "dog".
const char* const kTokenizer = R"({"version": "1.0", "added_tokens": [], "decoder": null, "model": {"type": "WordLevel", "unk_token": "?",
  "vocab": {"?": 0, "the": 1, "dog": 2}}, "pre_tokenizer": {"type": "WhitespaceSplit"}})";

void text_room(const std::filesystem::path& folder) {
  npu_train::write_file_atomic(folder / "tokenizer.json", kTokenizer);
  const auto tokenizer = npu_train::Tokenizer::load(folder);  // the folder's tokenizer.json
  const auto ids = tokenizer.encode("the old dog").ids;
  std::printf("%zu tokens: %s\n", ids.size(), tokenizer.decode(ids).c_str());
}

void report_room(const std::filesystem::path& folder) {
  npu_train::write_file_atomic(folder / "history.csv", "step,loss,val_loss\n1,2.30,\n2,2.11,2.4\n");
  const auto log = npu_train::read_csv(folder / "history.csv");  // checked as it is read; an error names the line
  npu_train::LinePlot plot{.title = "Loss", .x_label = "step", .y_label = "cross entropy"};
  for (const auto* name : {"loss", "val_loss"}) plot.series.push_back({name, log.numbers("step"), log.numbers(name)});
  npu_train::HtmlPage page("A short run");
  page.facts({{"steps", std::to_string(log.rows.size())}, {"last loss", npu_train::short_number(plot.series[0].y.back())}});
  page.plot(plot);
  npu_train::write_page(folder / "report.html", page.str());
}

void launch_room() {
  const auto result = npu_train::launch_ranks({.command = {"sh", "-c", "echo rank $RANK of $WORLD_SIZE"}, .nproc = 2});
  if (result.exit_code != 0) std::puts(result.message.c_str());  // names rank, host and cause
}

void device_room() {
  for (const auto* backend : npu_train::all_backends())
    std::printf("%s: %s\n", backend->name().c_str(), backend->is_available() ? "here" : backend->why_not().c_str());
  const auto device = npu_train::resolve_device("auto");
  const auto memory = npu_train::backend_of(device).memory(device);
  std::printf("%s: %s at most\n", device.str().c_str(), npu_train::human_bytes(static_cast<double>(memory.peak)).c_str());
}

void kernels_room() {
  const auto low = npu_train::round_to<c10::BFloat16>(3.14159F);
  std::printf("pi in bf16 is %.7f\n", static_cast<double>(npu_train::widen(low)));
}

void precision_room() {
  npu_train::PrecisionOptions options;
  options.mode = "bf16-true";
  const auto precision = npu_train::make_precision(options, npu_train::Device::parse("cpu"));
  npu_train::ParameterSet model;
  model.add({.name = "fc.weight", .value = torch::ones({10, 64}).requires_grad_(true)});
  const auto masters = precision->prepare(model);  // the model's tensor is now bf16, the master of the same name fp32
  std::printf("computes in %s, updates %s\n", c10::toString(model[0].value.scalar_type()), c10::toString(masters[0].value.scalar_type()));
}

struct SmallNet : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 10))};
};

npu_train::Model small_model() {
  const auto net = std::make_shared<SmallNet>();
  npu_train::Model model{.name = "small", .module = net, .inputs = {npu_train::image_input(3, 32)}, .num_classes = 10, .head = "fc"};
  model.blocks.push_back({"conv", [net](const at::Tensor& x) { return torch::relu(net->conv(x)); }});
  model.blocks.push_back({"head", [net](const at::Tensor& x) { return net->fc(x.mean({2, 3})); }});
  return npu_train::chain_blocks(std::move(model));
}

void trace_room() {
  const auto model = small_model();
  const npu_train::OpObserver observer(npu_train::parameters_of(*model.module), [](const npu_train::SeenOp& op) {
    std::printf("%s with %s: %lld FLOPs\n", op.name.c_str(), op.parameter.c_str(), static_cast<long long>(op.flops));
  });
  model.forward(torch::rand({1, 3, 32, 32}));
}

void nn_room() {
  std::puts(npu_train::summarize(small_model()).str(/*by_layer=*/true).c_str());
  const npu_train::InputSpec tokens{.name = "tokens", .dtype = at::kLong, .shape = {"batch", {"length", 128}}, .range = {{0, 50257}}};
  std::printf("%s\n", tokens.str().c_str());
  const auto q = torch::rand({2, 8, 16}), k = torch::rand({2, 8, 16});
  const auto scores = npu_train::named_value("scores", at::matmul(q, k.transpose(-2, -1)));
  std::printf("%lld scores\n", static_cast<long long>(scores.numel()));
}

void fuse_room() {
  const npu_train::FusedModel fused = npu_train::fuse(small_model(), {.min_saving = 0.1});
  std::puts(fused.report.str().c_str());  // each pattern with its saving, memory and error, and why it was not kept
  fused.model.forward(torch::rand({8, 3, 32, 32}));
}

void models_room() {
  const auto model = npu_train::resnet(18, {.num_classes = 10, .image_size = 32, .stem = "small"});
  const auto logits = model.forward(torch::rand({2, 3, 32, 32}));
  std::printf("%s: %lld logits\n", model.name.c_str(), static_cast<long long>(logits.size(1)));
}

void export_room(const std::filesystem::path& folder) {
  const auto model = npu_train::resnet(18, {.num_classes = 10, .image_size = 32, .stem = "small"});
  const auto written = npu_train::export_onnx(model, npu_train::example_batch(model.inputs), folder / "resnet18.onnx");
  std::printf("%lld convolutions\n", static_cast<long long>(written.operators.at("Conv")));
}

// Sample i has i % 3 boxes, each with a class.
struct BoxSet final : npu_train::Dataset {
  int64_t size() const override { return 6; }
  npu_train::Sample get(int64_t i) const override {
    const auto n = i % 3;
    return {{{"input", torch::rand({3, 16, 16})}, {"boxes", torch::rand({n, 4})}, {"classes", torch::zeros({n}, torch::kLong)}}, i};
  }
};

// All boxes of a batch in one tensor [boxes of all samples, 4], and the number of each sample's boxes.
npu_train::Batch packed_boxes(std::vector<npu_train::Sample> samples) {
  std::vector<at::Tensor> boxes;
  for (auto& sample : samples) {
    boxes.push_back(sample.fields[1].second);
    sample.fields = {sample.fields[0], {"count", torch::scalar_tensor(boxes.back().size(0), torch::kLong)}};
  }
  auto batch = npu_train::stack(samples);
  batch.set("boxes", torch::cat(boxes));
  return batch;
}

void collated_boxes() {
  auto parts = npu_train::builtin_parts();
  parts.collates.add<npu_train::NoOptions>("packed", "all boxes of a batch in one tensor",
                                           [](const npu_train::NoOptions&) -> npu_train::Collate { return packed_boxes; });
  const auto fields = npu_train::ConfigNode::list({"boxes", "classes"});
  for (const auto& collate : {npu_train::part("pad", {{"fields", fields}}), npu_train::part("packed")}) {
    npu_train::Loader loader(std::make_shared<BoxSet>(), {}, {.batch_size = 6, .collate = parts.collates.make(collate, "data.collate")});
    loader.begin_epoch(0);
    const auto batch = *loader.next();
    std::printf("%s: %lld dimensions, %lld boxes\n", collate.name.c_str(), static_cast<long long>(batch.at("boxes").dim()),
                static_cast<long long>(batch.at("boxes").numel() / 4));
  }
}

void data_room() {
  const auto shapes = std::make_shared<npu_train::MemoryImages>(npu_train::generate_shapes(/*count=*/100, /*seed=*/1));
  const npu_train::TransformContext context{.image_size = 32, .mean = shapes->info().mean, .std = shapes->info().std};
  const auto pipeline =
      npu_train::Pipeline::from_config({npu_train::part("horizontal_flip"), npu_train::part("normalize")}, "steps", context);
  npu_train::Loader loader(shapes, pipeline, {.batch_size = 40, .shuffle = true, .num_workers = 2});
  loader.begin_epoch(0);
  while (const auto batch = loader.next())
    std::printf("batch %lld: %lld images\n", static_cast<long long>(batch->index), static_cast<long long>(batch->size));
  npu_train::Loader few(shapes, pipeline, {.batch_size = 4, .shuffle = true, .subset = {3, 14, 15, 92}});
  few.begin_epoch(0);
  std::printf("an epoch of four images: the first is %lld\n", static_cast<long long>(few.next()->ids[0]));
}

void optim_room() {
  npu_train::ParameterSet parameters;
  parameters.add({.name = "w", .value = torch::ones({3}).requires_grad_(true)});
  npu_train::AdamW optimizer(npu_train::split_no_decay(parameters), {.lr = 0.1, .weight_decay = 0.01});
  optimizer.set_groups({.groups = {{.match = "w", .lr_mult = 2}}});
  for (int step = 0; step < 100; ++step) {
    optimizer.set_lr(0.1 * npu_train::schedule::cosine(step, 100, 0.0));
    parameters[0].value.square().sum().backward();
    npu_train::clip_grad_norm_(parameters, 1.0);
    optimizer.step();
    optimizer.zero_grad();
  }
  std::printf("largest weight %.4f\n", parameters[0].value.abs().max().item<double>());
}

void dist_room() {
  npu_train::SingleDeviceStrategy strategy;
  const auto weight = torch::ones({1}).requires_grad_(true);
  strategy.begin_window(/*micro_batches=*/1);
  strategy.backward((2 * weight).sum(), /*last=*/true);
  const auto total = strategy.finish_gradients({.loss = 8, .samples = 8});  // of one rank: its own
  const auto& ranks = strategy.ranks();
  if (ranks.is_main()) std::printf("rank %d of %d: %.0f samples\n", ranks.rank(), ranks.size(), total.samples);
}

// y = slope * x
class LineTask final : public npu_train::Task {
 public:
  npu_train::StepOutput training_step(const npu_train::ForwardContext& context) override {
    const auto& batch = context.batch();
    const auto outputs = predict(batch.input());
    return {torch::mse_loss(outputs, batch.target()), batch.weight, outputs};
  }
  at::Tensor predict(const at::Tensor& input) override { return input * slope_; }
  npu_train::ParameterSet parameters() override {
    npu_train::ParameterSet out;
    out.add({.name = "slope", .value = slope_});
    return out;
  }
  void set_training(bool) override {}
  void to(c10::Device device) override { slope_.set_data(slope_.detach().to(device)); }

 private:
  at::Tensor slope_ = torch::zeros({1}).requires_grad_(true);
};

void train_room() {
  // Its state is in each checkpoint, as the part callbacks.best_loss.
  struct BestLoss final : npu_train::Callback {
    std::string name() const override { return "best_loss"; }
    npu_train::State state() const override { return {{}, {{"loss", best}}}; }
    void load_state(const npu_train::State& state) override { best = state.number("loss", name()); }
    void on_epoch_end(npu_train::TrainLoop& loop, const npu_train::EpochReport& report) override {
      best = std::min(best, npu_train::scalar_or(report.train, "loss", 0));
      loop.log("best_loss", best);  // a column of metrics.csv, and a curve in TensorBoard
      std::printf("epoch %lld: best loss %.5f\n", static_cast<long long>(report.epoch), best);
    }
    double best = 1e30;
  };
  npu_train::Trainer trainer({.data = {.options = {{"batch_size", 16}}},
                              .optimizer = {"sgd", {{"lr", 0.1}}},
                              .trainer = {.max_epochs = 3},
                              .output = {.dir = ""}});
  trainer.add_callback(std::make_shared<BestLoss>());
  const auto x = torch::rand({64, 1});
  trainer.fit(std::make_shared<LineTask>(), std::make_shared<npu_train::TensorDataset>(x, 3 * x));
}

void align_room(const std::filesystem::path& folder) {
  torch::manual_seed(1);
  auto net = std::make_shared<SmallNet>();
  for (const char* run : {"a", "b"}) {
    npu_train::Dumper dumper({.task = "tensor", .dir = folder / "dumps" / run}, npu_train::dumped_model(*net));
    dumper.start();
    const auto loss = net->fc(torch::relu(net->conv(torch::ones({2, 3, 8, 8}))).mean({2, 3})).square().mean();
    dumper.loss(loss);
    loss.backward();
    dumper.stop();
    dumper.step();
    net->zero_grad();
    torch::NoGradGuard no_grad;
    net->fc->bias.add_(0.1);  // the second run begins with another bias
  }
  std::puts(npu_train::to_text(npu_train::compare_dumps(folder / "dumps/b", folder / "dumps/a")).c_str());
}

void doctor_room() {
  const auto report = npu_train::check_machine(npu_train::HostView::live(), npu_train::this_process());
  for (const auto& f : report.findings)
    if (f.verdict == npu_train::Verdict::Fail) std::fprintf(stderr, "%s: %s; %s\n", f.name.c_str(), f.finding.c_str(), f.fix.c_str());
  std::puts(report.summary().c_str());
}

void analyze_room() {
  const auto task = npu_train::classifier(small_model());
  const npu_train::Batch batch(torch::rand({4, 3, 8, 8}), torch::zeros({4}, torch::kLong));
  const auto analysis = npu_train::analyze(*task, batch, {.soc = "910B1"});
  std::puts(npu_train::to_text(analysis).c_str());
  std::puts(npu_train::to_text(npu_train::try_device(*task, batch, "cpu")).c_str());
}

void bench_room() {
  const at::Tensor a = torch::rand({200, 200}), b = torch::rand({400, 400});
  const auto pairs = npu_train::measure_alternately([&] { a.mm(a); }, [&] { b.mm(b); }, 10);
  std::puts(pairs.ratio().str().c_str());
}

void memory_before_the_run() {
  npu_train::RunConfig config;
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}}};
  config.data = {.name = "generated", .options = {{"train_size", 64}, {"batch_size", 32}}};
  config.optimizer = {.name = "sgd", .options = {{"lr", 0.1}}};
  const auto prediction = npu_train::predict_memory(config, {.hbm = int64_t{1} << 30, .variants = false});
  std::printf("%lld bytes; the largest batch is %lld\n", static_cast<long long>(prediction.peak.reserved),
              static_cast<long long>(prediction.largest));
}

void growth_of_a_loop_of_your_own(const std::function<void()>& step) {
  std::vector<std::pair<double, double>> handles;
  for (int i = 1; i <= 200; ++i) {
    step();
    if (i % 10 == 0) handles.emplace_back(i, npu_train::process_use({}).handles);
  }
  if (const auto growth = npu_train::steady_growth(handles, 0.05)) std::printf("file handles grow by %.2f a step\n", *growth);
}

void profiler_of_your_own(npu_train::Trainer& trainer, const std::vector<npu_train::Batch>& batches) {
  npu_train::Profiler profiler(trainer.loop().parts().device, trainer.task().parameters());
  trainer.add_observer(&profiler);
  for (const auto& batch : batches) trainer.train_step(batch);
  std::puts(npu_train::to_text(profiler.profile()).c_str());
}

void profiled_loop() {
  const auto x = torch::rand({64, 1});
  npu_train::Trainer trainer({.device = "cpu", .output = {.dir = ""}});
  trainer.setup(std::make_shared<LineTask>(), std::make_shared<npu_train::TensorDataset>(x, 3 * x));
  profiler_of_your_own(trainer, std::vector<npu_train::Batch>(10, npu_train::Batch(x, 3 * x)));
}

int main(int argc, char** argv) try {
  npu_train::set_log_sink(npu_train::make_standard_sink());
  launch_room();            // must precede the second thread of this process
  memory_before_the_run();  // early, because a process cannot add kinds of devices after its first backward pass
  growth_of_a_loop_of_your_own([] {});
  core_room();
  base_room();
  const auto folder = argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path();
  io_room(folder);
  text_room(folder);
  report_room(folder);
  align_room(folder);
  analyze_room();
  doctor_room();
  device_room();
  kernels_room();
  precision_room();
  trace_room();
  nn_room();
  fuse_room();
  models_room();
  export_room(folder);
  data_room();
  collated_boxes();
  optim_room();
  dist_room();
  train_room();
  profiled_loop();
  bench_room();
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
