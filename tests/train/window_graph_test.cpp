#include "testing.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/device/device_graph.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using npu_train::testing::has;
using npu_train::testing::Toy;

namespace {

// Returns the device of these tests, unless another one is given.
const Device& simulator() {
  static const Device device = [] {
    setenv("NPU_TRAIN_TEST_DEVICE", "sim_npu", /*overwrite=*/0);
    return npu_train::testing::device_under_test();
  }();
  return device;
}

// Returns whether a message gives the reason why the device cannot capture: in the words of the simulator, or by CANN's code for a stream
// that is captured or for a copy that the capture forbids.
bool says_why_not(const std::string& message, const char* words_of_simulator) {
  if (simulator().kind == "sim_npu") return has(message, words_of_simulator);
  return simulator().kind != "npu" || has(message, "107027") || has(message, "107030");
}

struct Run {
  std::string mode = "32-true";
  std::string optimizer = "sgd";
  double dropout = 0;
  size_t micro_batches = 1;
  double init_scale = 1024;
  double clip = 0;
  std::vector<int64_t> rows = {8, 8, 8, 8, 8, 8, 5, 8, 8};  // rows of each window's micro-batches; one window differs in shape
  std::function<void(Toy&, size_t window)> before{};        // called before each window
  size_t captures = 1;
};

// Collects the messages about graphs that are logged after its construction.
class Said {
 public:
  size_t lines() const { return lines_.size(); }
  const std::string& operator[](size_t i) const { return lines_.at(i); }

 private:
  std::vector<std::string> lines_;
  ScopedLogSink sink_{[this](LogLevel, std::string_view text) {
    if (text.find("cuda_graphs") != std::string_view::npos) lines_.emplace_back(text);
  }};
};

struct Outcome {
  uint64_t weights = 0, buffers = 0;
  std::vector<float> losses;
  int64_t skipped = 0;
};

Outcome trained(const Run& run, bool graphs) {
  const auto& device = simulator();
  Toy toy(run.mode, run.optimizer, run.dropout, {.init_scale = run.init_scale});
  auto step = toy.step({.clip_value = run.clip, .graphs = graphs});
  at::manual_seed(17);
  Outcome out;
  for (size_t i = 0; i < run.rows.size(); ++i) {
    const int64_t rows = run.rows[i];
    if (run.before) run.before(toy, i);
    std::vector<Batch> window;
    for (size_t k = 0; k < run.micro_batches; ++k) {
      const at::Tensor x = at::linspace(-1, 1 + static_cast<double>(i), rows * 6).reshape({rows, 6}) * static_cast<double>(k + 1);
      window.push_back(to_device(Batch(x, at::arange(rows, at::kLong).remainder(4)), device));
    }
    const auto result = step.run(window);
    out.losses.push_back(result.packed[0].item<float>());
    out.skipped += !result.taken;
  }
  out.weights = npu_train::testing::weights(toy);
  for (const auto& [name, buffer] : toy.task->buffers()) out.buffers ^= digest(buffer.cpu());
  return out;
}

void check_equal(const Run& run) {
  CAPTURE(run.mode);
  CAPTURE(run.micro_batches);
  const Said said;
  const auto eager = trained(run, false);
  CHECK(said.lines() == 0);
  const auto graphed = trained(run, true);
  REQUIRE(said.lines() == run.captures);
  for (size_t i = 0; i < said.lines(); ++i) CHECK(has(said[i], "are captured"));
  CHECK(eager.losses == graphed.losses);
  CHECK(eager.weights == graphed.weights);
  CHECK(eager.buffers == graphed.buffers);
  CHECK(eager.skipped == graphed.skipped);
}

// Returns a digest of the weights of a one-layer network after a step on each batch.
uint64_t trained(Model model, const std::vector<Batch>& batches, bool graphs) {
  auto task = classifier(std::move(model));
  task->to(simulator().c10());
  const auto precision = make_precision({}, simulator());
  Sgd sgd(precision->prepare(task->parameters()), {.lr = 0.1});
  SingleDeviceStrategy strategy;
  const Observers observers;
  TrainStep step(*task, *precision, sgd, nullptr, strategy, observers, {.graphs = graphs});
  for (const auto& batch : batches) step.run({batch});
  return digest(sgd.parameters());
}

std::vector<Batch> seven_batches() {
  simulator();  // toy_batch() is then on this device
  std::vector<Batch> out;
  for (uint64_t i = 0; i < 7; ++i) out.push_back(npu_train::testing::toy_batch(8, i));
  return out;
}

}  // namespace

TEST_CASE("window_graph: a captured window gives the bits of an eager one in every precision") {
  for (const char* mode : {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"})
    for (const size_t micro_batches : {size_t{1}, size_t{3}}) check_equal({.mode = mode, .dropout = 0.3, .micro_batches = micro_batches});
  check_equal({.optimizer = "adamw", .clip = 0.5});
}

TEST_CASE("window_graph: the loss scale is not captured, and an overflow is skipped as usual") {
  const Run run{.mode = "16-mixed", .init_scale = 16777216};
  check_equal(run);
  CHECK(trained(run, true).skipped > 0);
}

TEST_CASE("window_graph: a step that cannot be captured runs operator by operator, and the reason is logged once") {
  struct Reads final : torch::nn::Module {
    torch::nn::Linear fc{register_module("fc", torch::nn::Linear(6, 4))};
    at::Tensor forward(const at::Tensor& x) {
      const auto y = fc(x);
      return y.sum().item<float>() > 1e9 ? y * 2 : y;  // the host makes a decision
    }
  };
  const Said said;
  const auto run = [batches = seven_batches()](bool graphs) {
    at::manual_seed(2);
    return trained(as_model(std::make_shared<Reads>()), batches, graphs);
  };
  const auto eager = run(false);
  CHECK(run(true) == eager);
  REQUIRE(said.lines() == 1);
  CHECK(has(said[0], "operator by operator"));
  CHECK(says_why_not(said[0], "a value was read on the host"));
}

TEST_CASE("window_graph: a capture that fails draws no random numbers") {
  struct Draws final : torch::nn::Module {
    torch::nn::Linear fc{register_module("fc", torch::nn::Linear(6, 4))};
    bool portable = false;
    at::Tensor forward(const at::Tensor& x) {
      const auto y = at::dropout(fc(x), 0.3, true);  // drawn by the device's generator
      return y * (portable ? PortableRandom::uniform({4}, x.device()) : at::rand({4}).to(x.device()));
    }
  };
  const auto run = [batches = seven_batches()](bool portable, bool graphs) {
    const PortableRandom numbers(4);
    seed_everything(2);
    auto net = std::make_shared<Draws>();
    net->portable = portable;
    const auto weights = trained(as_model(net), batches, graphs);
    return std::pair(weights, PortableRandom::position().next);
  };
  for (const bool portable : {false, true}) {
    CAPTURE(portable);
    const Said said;
    CHECK(run(portable, true) == run(portable, false));
    REQUIRE(said.lines() == 1);
    CHECK(says_why_not(said[0], "a copy between host and device"));
  }
}

TEST_CASE("window_graph: the shape that comes most is captured, not the short window that a run began with") {
  check_equal({.rows = {5, 8, 8, 8, 8, 8, 5, 8}});
  check_equal({.rows = {5, 8, 8, 5, 8, 8, 5, 8, 8, 5, 8, 8, 8}});
  check_equal({.rows = {8, 8, 8, 8, 5, 5, 5, 5, 5, 5, 8}});  // the captured shape stays
  check_equal({.rows = {5, 8, 5, 8, 5, 8, 5, 8, 5, 8}, .captures = 0});
}

TEST_CASE("window_graph: parameters that are frozen or unfrozen after the capture") {
  for (const char* mode : {"32-true", "bf16-true"})
    check_equal({.mode = mode,
                 .rows = std::vector<int64_t>(10, 8),
                 .before =
                     [](Toy& toy, size_t window) {
                       if (window == 0) toy.net->head->bias.requires_grad_(false);
                       if (window == 6) toy.net->head->bias.requires_grad_(true);
                       if (window == 7) toy.net->first->weight.requires_grad_(false);
                     },
                 .captures = 3});
}

TEST_CASE("window_graph: observers see every operator, so nothing is captured while there are any") {
  struct Counts final : StepObserver {
    int losses = 0;
    void on_loss(const at::Tensor&, int64_t, int) override { ++losses; }
  };
  Counts counts;
  simulator();
  Toy toy;
  auto step = toy.step({.graphs = true});
  toy.observers.add(&counts);
  for (int i = 0; i < 6; ++i) step.run({npu_train::testing::toy_batch(8, static_cast<uint64_t>(i))});
  CHECK(counts.losses == 6);
  toy.observers.remove(&counts);
  const Said said;
  for (int i = 0; i < 6; ++i) step.run({npu_train::testing::toy_batch(8, static_cast<uint64_t>(i))});
  CHECK(said.lines() == 1);
}

TEST_CASE("window_graph: weights that were given other memory are captured again") {
  simulator();
  Toy toy;
  auto step = toy.step({.graphs = true});
  const Said said;
  for (int i = 0; i < 6; ++i) step.run({npu_train::testing::toy_batch(8, static_cast<uint64_t>(i))});
  CHECK(said.lines() == 1);
  auto& weight = toy.net->first->weight;
  weight.set_data(weight.detach().clone());
  const auto before = npu_train::testing::copy_of(toy.optimizer->parameters());
  step.run({npu_train::testing::toy_batch(8, 9)});
  CHECK(said.lines() == 2);
  CHECK_FALSE(before.at("first.weight").equal(weight.detach()));
}

TEST_CASE("window_graph: a loop captures what it is asked to, and says why not") {
  simulator();
  const auto said_by = [](TrainerOptions options) {
    std::string said;
    const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += std::string(text) + "\n"; });
    Toy toy;
    options.max_epochs = 2;
    toy.loop(options)->fit();
    return said;
  };
  CHECK(has(said_by({.cuda_graphs = "true"}), "forward and backward of a window are captured"));
  CHECK_FALSE(has(said_by({}), "cuda_graphs"));  // a simulated device gains no speed
  {
    const PortableRandom numbers(1);
    const auto said = said_by({.cuda_graphs = "true"});
    CHECK(has(said, "trainer.cuda_graphs: off: rng: portable draws on the host"));
    CHECK_FALSE(has(said, "captured"));
  }
  CHECK(has(said_by({.cuda_graphs = "true", .on_oom = "retry"}), "trainer.cuda_graphs: off: trainer.on_oom"));
}
