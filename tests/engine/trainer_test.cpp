#include "testing.hpp"

#include "npu_train/engine/trainer.hpp"

#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include <torch/nn.h>

#include "engine/small_trainer.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/threads.hpp"
#include "npu_train/train/classifier.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

/// A task that records the shape of every input.
struct Watched final : WrappedTask {
  using WrappedTask::WrappedTask;
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    shapes.insert(batch.input().sizes().vec());
    return inner->training_step(context);
  }
  StepOutput validation_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    shapes.insert(batch.input().sizes().vec());
    return inner->validation_step(context);
  }
  std::vector<std::string> norm_parameters() override { return inner->norm_parameters(); }
  std::set<std::vector<int64_t>> shapes;
};

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

}  // namespace

TEST_CASE("a configuration trains, and its files are there") {
  TempDir dir;
  Trainer trainer(resnet_run(dir.path()));
  const auto r = trainer.fit();
  CHECK(r.history.size() == 2);
  CHECK(r.global_step == 8);
  CHECK(fs::path(r.run_dir) == dir / "resnet18_generated/version_0");
  for (const char* file :
       {"config.yaml", "metrics.csv", "history.json", "checkpoints/last/manifest.json", "checkpoints/best/manifest.json"})
    CHECK(fs::exists(fs::path(r.run_dir) / file));
  const auto log = text_of(fs::path(r.run_dir) / "train.log");
  CHECK(log.find("device cpu, precision 32-true") != std::string::npos);
  CHECK(log.find("epoch 2 done") != std::string::npos);
  const auto config = text_of(fs::path(r.run_dir) / "config.yaml");
  CHECK(config.find("num_classes: 10") != std::string::npos);
  CHECK(text_of(fs::path(r.run_dir) / "metrics.csv").find("epoch,step,phase,loss,acc1,acc5") == 0);
  // A second run does not change the first.
  Trainer again(resnet_run(dir.path()));
  CHECK(fs::path(again.fit().run_dir).filename() == "version_1");
}

TEST_CASE("your model and your data, without a file") {
  Trainer trainer({.device = "cpu", .precision = "32-true", .trainer = {.max_epochs = 3}, .output = {.dir = ""}});
  const auto r = trainer.fit(classifier(Tiny()), small_images(40), small_images(10));
  CHECK(r.history.size() == 3);
  CHECK(r.run_dir.empty());
  CHECK(trainer.predict(torch::randn({5, 3, 8, 8})).sizes() == at::IntArrayRef({5, 10}));
  CHECK(trainer.validate().front().first == "loss");
  CHECK(trainer.train_step(Batch(torch::randn({4, 3, 8, 8}), torch::randint(10, {4}))).taken);
  CHECK(error_of([&] { trainer.model(); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a model with two inputs and two outputs predicts from a batch") {
  struct TwoImpl : torch::nn::Module {
    TwoImpl() : left(register_module("left", torch::nn::Linear(3, 2))), right(register_module("right", torch::nn::Linear(5, 2))) {}
    Outputs forward(const Batch& batch) {
      const auto a = left(batch.at("a")), b = right(batch.at("b"));
      return Outputs({{"sum", a + b}, {"difference", a - b}});
    }
    torch::nn::Linear left, right;
  };
  const auto net = std::make_shared<TwoImpl>();
  Trainer trainer({.device = "cpu", .precision = "bf16-mixed", .output = {.dir = ""}});
  trainer.setup(task(net, [](const Outputs& out, const Batch&) { return out.first().mean(); }), small_images(40));
  Batch batch;
  batch.set("a", torch::randn({4, 3}));
  batch.set("b", torch::randn({4, 5}));
  const auto out = trainer.predict(batch);
  const torch::NoGradGuard no_grad;
  const auto expected = net->forward(batch);
  REQUIRE(out.fields().size() == 2);
  for (const auto& [name, value] : expected.fields()) {
    CAPTURE(name);
    CHECK((out.at(name).scalar_type() == at::kFloat));
    CHECK_FALSE(out.at(name).requires_grad());
    CHECK(torch::allclose(out.at(name), value, 2e-2, 2e-2));  // inputs, weights and outputs are rounded to bf16, by up to 2^-9
  }
  CHECK(error_of([&] { trainer.predict(torch::randn({4, 3})); }).kind() == ErrorKind::Usage);  // the field "a" is missing
}

TEST_CASE("stop inside an epoch, resume in a new trainer: the weights of one uninterrupted run") {
  TempDir dir;
  auto config = resnet_run(dir / "complete");
  config.checkpoint.save_top_k = 0;
  Trainer whole(config);
  whole.fit();
  const auto expected = digest(whole.state().at("model"));

  config.output.dir = (dir / "parts").string();
  auto first = config;
  first.trainer.max_steps = 5;
  CHECK(Trainer(first).fit().reason == StopReason::MaxSteps);
  Trainer second(config);
  CHECK_FALSE(second.resume("auto").empty());
  const auto r = second.fit();
  CHECK(r.global_step == 8);
  CHECK(digest(second.state().at("model")) == expected);
  CHECK(r.run_dir.ends_with("version_0"));
  CHECK(text_of(fs::path(r.run_dir) / "history.json").find("\"epoch\": 1") != std::string::npos);
}

TEST_CASE("resuming from a checkpoint that does not exist") {
  TempDir dir;
  Trainer trainer(resnet_run(dir.path()));
  CHECK(trainer.resume("auto") == "");
  for (const char* which : {"last", "best", "no/such/folder"})
    CHECK(error_of([&] { trainer.resume(which); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("for a configuration without model or data, the message lists the existing ones") {
  const auto e = error_of([] { Trainer({.device = "cpu", .data = {.name = "generated"}, .output = {.dir = ""}}).fit(); });
  CHECK(std::string(e.what()).find("resnet50") != std::string::npos);
  const auto without_data = error_of([] { Trainer({.device = "cpu", .model = {.name = "resnet18"}, .output = {.dir = ""}}).fit(); });
  CHECK_MESSAGE(has(without_data.what(), "generated"), without_data.what());
  CHECK(error_of([] { Trainer({.device = "cuda:7", .output = {.dir = ""}}).setup(classifier(Tiny()), small_images(4)); }).kind() ==
        ErrorKind::Device);
}

TEST_CASE("a folder that cannot be written is an error before training starts") {
  auto config = resnet_run("/proc/none");
  CHECK(error_of([&] { Trainer(config).fit(); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("fast_dev_run writes nothing") {
  TempDir dir;
  auto config = resnet_run(dir.path());
  config.trainer.fast_dev_run = true;
  CHECK(Trainer(config).fit().reason == StopReason::FastDevRun);
  CHECK(fs::is_empty(dir.path()));
}

TEST_CASE("an exception of the data surfaces as an Error, naming the sample") {
  struct Broken final : Dataset {
    int64_t size() const override { return 8; }
    Sample get(int64_t index) const override {
      if (index == 5) throw std::runtime_error("disk on fire");
      return {{{"input", torch::zeros({3, 8, 8})}, {"target", torch::tensor(1)}}, index};
    }
  };
  Trainer trainer({.device = "cpu", .data = {.options = {{"batch_size", 4}, {"num_workers", "2"}}}, .output = {.dir = ""}});
  const auto e = error_of([&] { trainer.fit(classifier(Tiny()), std::make_shared<Broken>()); });
  CHECK(std::string(e.what()) == "[Loader] sample 5: disk on fire");
  CHECK(e.kind() == ErrorKind::Data);  // not Internal, which would mean a defect of the library
}

TEST_CASE("an exception of the model is one of the program") {
  struct Net : torch::nn::Module {
    torch::nn::Linear head{register_module("head", torch::nn::Linear(2, 2))};
    at::Tensor forward(at::Tensor) { throw std::runtime_error("I expect 1 channel"); }
  };
  Trainer trainer({.device = "cpu", .trainer = {.num_sanity_val_steps = 0}, .output = {.dir = ""}});
  const auto e = error_of([&] { trainer.fit(classifier(std::make_shared<Net>()), small_images(40)); });
  CHECK(std::string(e.what()) == "[Task] I expect 1 channel");
  CHECK(e.kind() == ErrorKind::Usage);
}

TEST_CASE("a trainer that was moved from refuses every call but its destruction and an assignment") {
  Trainer trainer({.device = "cpu", .output = {.dir = ""}});
  Trainer moved(std::move(trainer));
  const std::function<void()> calls[] = {[&] { trainer.fit(); },   [&] { trainer.fit(classifier(Tiny()), small_images(40)); },
                                         [&] { trainer.setup(); }, [&] { trainer.resume(); },
                                         [&] { trainer.state(); }, [&] { trainer.config(); },
                                         [&] { trainer.loop(); },  [&] { trainer.add_callback(nullptr); }};
  for (const auto& call : calls) {
    const auto e = error_of(call);
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(e.what(), "this trainer was moved from"), e.what());
  }
  trainer.request_stop();
  trainer = std::move(moved);
  CHECK(trainer.config().device == "cpu");
}

TEST_CASE("a call from a second thread is refused while the first one trains, and leaves it alone") {
  struct Asked final : Callback {
    explicit Asked(Trainer& trainer) : trainer_(trainer) {}
    void on_step_end(TrainLoop&, const StepReport&) override {
      std::thread([&] { message = error_of([&] { trainer_.validate(); }).what(); }).join();
      trainer_.state();  // the run's own thread may call it
    }
    std::string message;

   private:
    Trainer& trainer_;
  };
  Trainer trainer({.device = "cpu", .trainer = {.max_epochs = 1}, .output = {.dir = ""}});
  const auto asked = std::make_shared<Asked>(trainer);
  trainer.add_callback(asked);
  CHECK(trainer.fit(classifier(Tiny()), small_images(40)).reason == StopReason::MaxEpochs);
  CHECK_MESSAGE(has(asked->message, "this trainer is in use by another thread"), asked->message);
  std::thread([&] { CHECK_NOTHROW(trainer.state()); }).join();  // free after the training
}

TEST_CASE("two trainers in two threads have a log each") {
  const TempDir dir;
  const auto train = [&](const char* name) {
    Trainer trainer(
        {.device = "cpu", .trainer = {.max_epochs = 1, .log_every_n_steps = 1}, .output = {.dir = dir.path().string(), .name = name}});
    struct Speaks final : Callback {
      explicit Speaks(std::string name) : name_(std::move(name)) {}
      void on_step_end(TrainLoop&, const StepReport&) override { log_info("a step of ", name_); }
      std::string name_;
    };
    trainer.add_callback(std::make_shared<Speaks>(name));
    trainer.fit(classifier(Tiny()), small_images(64));
  };
  std::thread one(train, "one"), two(train, "two");
  one.join();
  two.join();
  const auto count = [](const std::string& text, const std::string& word) {
    size_t n = 0;
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
    return n;
  };
  const auto log = text_of(dir / "one/version_0/train.log"), other = text_of(dir / "two/version_0/train.log");
  CHECK(count(log, "a step of one") == 2);
  CHECK(count(log, "a step of two") == 0);
  CHECK(count(other, "a step of two") == 2);
  CHECK(count(other, "a step of one") == 0);
}

TEST_CASE("an exception thrown in backward is one of the program") {
  struct Bad : torch::autograd::Function<Bad> {
    static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
      throw std::runtime_error("backward went wrong");
    }
  };
  struct Net : torch::nn::Module {
    Net() { head = register_module("head", torch::nn::Linear(192, 10)); }
    at::Tensor forward(at::Tensor x) { return Bad::apply(head(x.flatten(1))); }
    torch::nn::Linear head{nullptr};
  };
  Trainer trainer({.device = "cpu", .output = {.dir = ""}});
  const auto e = error_of([&] { trainer.fit(classifier(std::make_shared<Net>()), small_images(40)); });
  CHECK(std::string(e.what()) == "[backward] backward went wrong");
  CHECK(e.kind() == ErrorKind::Usage);
}

TEST_CASE("two trainers in two threads, and a stop from a third") {
  const auto train = [](std::string* error) {
    try {
      Trainer trainer({.device = "cpu", .trainer = {.max_epochs = 3}, .output = {.dir = ""}});
      trainer.fit(classifier(Tiny()), small_images(40));
    } catch (const std::exception& e) {
      *error = e.what();
    }
  };
  std::string a, b;
  std::thread one(train, &a), two(train, &b);
  one.join();
  two.join();
  CHECK(a == "");
  CHECK(b == "");

  Trainer endless({.device = "cpu", .trainer = {.max_epochs = -1}, .output = {.dir = ""}});
  std::thread stopper([&] { endless.request_stop(); });
  CHECK(endless.fit(classifier(Tiny()), small_images(40)).reason == StopReason::Requested);
  stopper.join();
}

TEST_CASE("two trainers in two threads end with the weights of the same two one after the other") {
  const ThreadCount one(1);  // also for threads that start later
  const auto data = small_images(40);
  const auto fresh = [] {
    torch::manual_seed(8);
    return classifier(Tiny());
  };
  // The two differ in the order of their batches; nothing else is random.
  const auto train = [&data](int64_t seed, const std::shared_ptr<Task>& task, std::string* error) {
    try {
      Trainer trainer({.seed = seed,
                       .device = "cpu",
                       .precision = "32-true",
                       .data = {.options = {{"batch_size", 8}, {"num_workers", "1"}}},
                       .trainer = {.max_epochs = 5, .threads = 1},
                       .output = {.dir = ""}});
      trainer.fit(task, data);
    } catch (const std::exception& e) {
      *error = e.what();
    }
  };
  const auto start = fresh(), a = fresh(), b = fresh(), c = fresh(), d = fresh();
  std::string errors[4];
  std::thread first([&] { train(1, a, &errors[0]); }), second([&] { train(2, b, &errors[1]); });
  first.join();
  second.join();
  train(1, c, &errors[2]);
  train(2, d, &errors[3]);
  for (const auto& error : errors) CHECK(error == "");
  CHECK(digest(a->parameters()) == digest(c->parameters()));
  CHECK(digest(b->parameters()) == digest(d->parameters()));
  CHECK(digest(a->parameters()) != digest(b->parameters()));
  CHECK(digest(a->parameters()) != digest(start->parameters()));
}

TEST_CASE("static_shapes: the model sees batches of one shape, and the metrics are those of the samples that are there") {
  const auto train = small_images(22), val = small_images(10);
  const auto fit = [&](bool padded) {
    torch::manual_seed(3);
    const auto task = std::make_shared<Watched>(classifier(Tiny()));
    Trainer trainer({.device = "cpu",
                     .precision = "32-true",
                     .data = {.options = {{"batch_size", 8}, {"num_workers", "0"}}},
                     .trainer = {.max_epochs = 2, .static_shapes = padded},
                     .output = {.dir = ""}});
    const auto result = trainer.fit(task, train, val);
    return std::pair(result.final_val, task->shapes);
  };
  const auto [padded, padded_shapes] = fit(true);
  const auto [plain, plain_shapes] = fit(false);
  CHECK((padded_shapes == std::set<std::vector<int64_t>>{{8, 3, 8, 8}}));
  CHECK((plain_shapes == std::set<std::vector<int64_t>>{{8, 3, 8, 8}, {6, 3, 8, 8}, {2, 3, 8, 8}}));
  REQUIRE(padded.size() == plain.size());
  REQUIRE(padded.size() == 3);
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(padded[i].first == plain[i].first);
    CHECK(padded[i].second == doctest::Approx(plain[i].second).epsilon(1e-5));
  }
}

TEST_CASE("a good guest: the random numbers of the program are its own, and so are those of the run") {
  struct Dropping : torch::nn::Module {
    Dropping() { head = register_module("head", torch::nn::Linear(192, 10)); }
    at::Tensor forward(at::Tensor x) { return head(torch::dropout(x.flatten(1), 0.5, is_training())); }
    torch::nn::Linear head{nullptr};
  };
  const auto fresh = [] {
    torch::manual_seed(9);
    return classifier(std::make_shared<Dropping>());
  };
  const auto config = [](int64_t seed) {
    return RunConfig{
        .seed = seed, .device = "cpu", .precision = "32-true", .trainer = {.max_epochs = 2, .threads = 1}, .output = {.dir = ""}};
  };
  const auto data = small_images(40);
  SUBCASE("fit gives the program's generator back") {
    const auto task = fresh();
    torch::manual_seed(5);
    const auto expected = torch::rand({3});
    torch::manual_seed(5);
    Trainer trainer(config(42));
    trainer.fit(task, data);
    CHECK(torch::equal(torch::rand({3}), expected));
  }
  SUBCASE("what the program does with its generator between two steps does not reach the run") {
    const auto x = torch::randn({8, 3, 8, 8}), y = torch::randint(10, {8});
    const auto steps = [&](int64_t seed, bool disturbed) {
      const auto task = fresh();
      Trainer trainer(config(seed));
      trainer.setup(task, data);
      for (int i = 0; i < 3; ++i) {
        trainer.train_step(Batch(x, y));
        if (disturbed) torch::manual_seed(77);
      }
      return digest(task->parameters());
    };
    CHECK(steps(42, true) == steps(42, false));
    CHECK(steps(42, false) != steps(43, false));  // a step depends on random numbers
  }
}

TEST_CASE("a good guest: no output without a sink, settings of the process restored") {
  at::set_num_threads(2);
  Trainer trainer({.deterministic = "true", .device = "cpu", .trainer = {.max_epochs = 1, .threads = 1}, .output = {.dir = ""}});
  trainer.fit(classifier(Tiny()), small_images(40));
  CHECK(at::get_num_threads() == 2);
  CHECK_FALSE(at::globalContext().deterministicAlgorithms());
  CHECK(at::globalContext().deterministicFillUninitializedMemory());
}

TEST_CASE("trainer.benchmark and trainer.allow_tf32 hold while a call runs; auto leaves the process's choice") {
  auto& context = at::globalContext();
  struct Seen final : Callback {
    bool benchmark = false, tf32 = false;
    void on_fit_start(TrainLoop& /*loop*/) override {
      benchmark = at::globalContext().benchmarkCuDNN();
      tf32 = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
    }
  };
  const bool before = context.benchmarkCuDNN();
  const auto products = context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  const auto convolutions = context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV);
  for (const std::string choice : {"true", "false", "auto"}) {
    CAPTURE(choice);
    const auto seen = std::make_shared<Seen>();
    Trainer trainer({.device = "cpu", .trainer = {.max_epochs = 1, .benchmark = choice, .allow_tf32 = choice}, .output = {.dir = ""}});
    trainer.add_callback(seen);
    trainer.fit(classifier(Tiny()), small_images(40));
    CHECK(seen->benchmark == (choice == "auto" ? before : choice == "true"));
    CHECK(seen->tf32 == (choice == "auto" ? products == at::Float32Precision::TF32 : choice == "true"));
    CHECK(context.benchmarkCuDNN() == before);
    CHECK(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == products);
    CHECK(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV) == convolutions);
  }
}

TEST_CASE("blocks named in amp.fp32_modules keep fp32 parameters and compute in fp32") {
  for (const char* precision : {"bf16-mixed", "bf16-true"}) {
    CAPTURE(precision);
    auto config = resnet_run("");
    config.precision = precision;
    config.amp.fp32_modules = {"head", "layer4.0"};
    config.trainer.max_epochs = 1;
    Trainer trainer(config);
    CHECK(trainer.fit().history.size() == 1);
    int64_t named = 0;
    for (const auto& p : trainer.task().parameters()) {
      if (!p.name.starts_with("fc.") && !p.name.starts_with("layer4.0.")) continue;
      CHECK((p.value.scalar_type() == at::kFloat));
      ++named;
    }
    CHECK(named == 2 + 3 * 3);  // fc, and two convolutions and a projection, each with its norm
  }
  auto config = resnet_run("");
  config.amp.fp32_modules = {"layer9"};
  CHECK(std::string(error_of([&] { Trainer(config).setup(); }).what()).find("layer4.0") != std::string::npos);
  config.precision = "bf16-true";
  config.amp.fp32_modules = {"stem"};
  CHECK(error_of([&] { Trainer(config).setup(); }).kind() == ErrorKind::Usage);
}
