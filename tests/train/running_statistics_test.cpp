// Running statistics of BatchNorm on two ranks, compared with one process that accumulates the micro-batches of both.
#include "train/running_statistics.hpp"

#include "testing.hpp"

#include <cmath>

#include "dist/in_process.hpp"
#include "npu_train/base/number_bytes.hpp"
#include "npu_train/nn/batch_norm_act.hpp"
#include "train/toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr size_t kTwoRanks = 2;

// A network whose norm runs twice in a forward, with npu_train's own kernel or with libtorch's.
struct NormNetImpl : torch::nn::Module {
  explicit NormNetImpl(bool own) : own_(own) {
    first = register_module("first", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    head = register_module("head", torch::nn::Linear(16, 4));
  }
  at::Tensor normalised(const at::Tensor& x) {
    if (!own_) return norm(x).relu();
    if (is_training()) norm->num_batches_tracked.add_(1);
    return batch_norm_act(x, {norm->weight, norm->bias, norm->running_mean, norm->running_var, is_training()});
  }
  at::Tensor forward(const at::Tensor& x) { return head(normalised(normalised(first(x)) * 3)); }
  bool own_;
  torch::nn::Linear first{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(NormNet);

// Lists only one of the two statistics of its norm.
struct VarianceAlone final : WrappedTask {
  using WrappedTask::WrappedTask;
  std::vector<NamedTensor> buffers() override {
    auto all = inner->buffers();
    std::erase_if(all, [](const NamedTensor& b) { return b.first != "norm.running_var"; });
    return all;
  }
};

struct NormRun {
  explicit NormRun(bool own, std::shared_ptr<Strategy> strategy, const std::string& mode = "16-mixed") : strategy(std::move(strategy)) {
    torch::manual_seed(11);
    net = NormNet(own);
    task = classifier(net);
    precision = make_precision({mode, {.growth_interval = 2}, {}}, device_of(at::kCPU));
    auto trained = this->strategy->setup(precision->prepare(task->parameters(), {"norm.weight", "norm.bias"}));
    optimizer = std::make_unique<Sgd>(trained, SgdOptions{.lr = 0.1});
  }
  std::vector<at::Tensor> buffers() const {
    std::vector<at::Tensor> out;
    for (const auto& [name, buffer] : task->buffers()) out.push_back(buffer.clone());
    return out;
  }
  // Returns the buffers after each window.
  std::vector<std::vector<at::Tensor>> train(const std::vector<std::vector<Batch>>& windows, bool synced = false) {
    TrainStep step(*task, *precision, *optimizer, nullptr, *strategy, observers, {.sync_batchnorm = synced});
    std::vector<std::vector<at::Tensor>> out;
    for (const auto& window : windows) {
      taken.push_back(step.run(window, 32).taken);
      out.push_back(buffers());
    }
    return out;
  }

  NormNet net{nullptr};
  std::shared_ptr<Task> task;
  std::unique_ptr<Precision> precision;
  std::unique_ptr<Optimizer> optimizer;
  std::shared_ptr<Strategy> strategy;
  Observers observers;
  std::vector<bool> taken;
};

// Rows of the micro-batches by window, round and rank; 0: the rank has none. The last window but one overflows.
const std::vector<std::vector<std::vector<int64_t>>> kRows = {{{8, 5}}, {{8, 8}, {4, 7}}, {{3, 6}, {5, 0}}, {{7, 8}}, {{2, 0}}};

std::vector<std::vector<Batch>> windows_of(size_t first_rank, size_t last_rank, double factor = 1e30) {
  std::vector<std::vector<Batch>> out;
  for (size_t w = 0; w < kRows.size(); ++w) {
    out.emplace_back();
    for (size_t k = 0; k < kRows[w].size(); ++k)
      for (size_t rank = first_rank; rank <= last_rank; ++rank) {
        if (kRows[w][k][rank] == 0) continue;
        auto batch = toy_batch(kRows[w][k][rank], 100 * w + 10 * k + rank);
        if (w == 3 && rank == 1) batch.set("input", batch.input() * factor);
        out.back().push_back(batch);
      }
  }
  return out;
}

// Joins each round of micro-batches into one.
std::vector<std::vector<Batch>> joined_windows() {
  std::vector<std::vector<Batch>> out;
  const auto batches = windows_of(0, 1, 1);
  for (size_t w = 0; w < kRows.size(); ++w) {
    out.emplace_back();
    size_t next = 0;
    for (const auto& round : kRows[w]) {
      std::vector<at::Tensor> inputs, targets;
      for (const auto rows : round) {
        if (rows == 0) continue;
        inputs.push_back(batches[w][next].input());
        targets.push_back(batches[w][next++].target());
      }
      out.back().emplace_back(at::cat(inputs), at::cat(targets));
    }
  }
  return out;
}

void check_ranks(bool own) {
  CAPTURE(own);
  at::set_num_threads(1);
  NormRun one(own, std::make_shared<SingleDeviceStrategy>());
  const auto expected = one.train(windows_of(0, 1));
  REQUIRE(one.taken == std::vector<bool>{true, true, true, false, true});
  CHECK(at::equal(expected[2][2], at::full({}, 18, at::kLong)));  // two norms in each of nine micro-batches
  const std::vector<std::vector<Batch>> batches[kTwoRanks] = {windows_of(0, 0), windows_of(1, 1)};
  const auto exchange = std::make_shared<Exchange>(static_cast<int>(kTwoRanks));
  std::vector<NormRun> runs;
  for (int r = 0; r < 2; ++r) runs.emplace_back(own, make_rank(exchange, r, false));
  std::vector<std::vector<at::Tensor>> seen[kTwoRanks];
  on_ranks(*exchange, [&](int r) { seen[r] = runs[static_cast<size_t>(r)].train(batches[r]); });
  for (size_t w = 0; w < kRows.size(); ++w)
    for (size_t i = 0; i < expected[w].size(); ++i) {
      CAPTURE(w);
      CAPTURE(i);
      CHECK(at::equal(seen[0][w][i], seen[1][w][i]));
      // If a rank has several micro-batches, parameters differ by rounding errors, and so do the statistics of later windows.
      if (own && w == 0) CHECK(at::equal(seen[0][w][i], expected[w][i]));
      CHECK(at::allclose(seen[0][w][i], expected[w][i], 1e-5, 1e-6));
    }
}

}  // namespace

TEST_CASE("ranks move the running statistics by the batches of all, in the order of one process; a skipped step moves none") {
  check_ranks(true);
  check_ranks(false);
}

TEST_CASE("statistics that the task does not list are those of the rank's own batches") {
  for (const bool own : {true, false}) {
    CAPTURE(own);
    const std::vector<std::vector<Batch>> batches[kTwoRanks] = {windows_of(0, 0), windows_of(1, 1)};
    const auto exchange = std::make_shared<Exchange>(static_cast<int>(kTwoRanks));
    std::vector<NormRun> runs;
    for (int r = 0; r < 2; ++r) {
      runs.emplace_back(own, make_rank(exchange, r, false));
      runs.back().task = std::make_shared<VarianceAlone>(runs.back().task);
      REQUIRE(runs.back().task->buffers().size() == 1);
    }
    on_ranks(*exchange, [&](int r) { runs[static_cast<size_t>(r)].train({batches[r][0]}); });
    const auto mean = [&](size_t r) { return runs[r].net->norm->running_mean; };
    CHECK(mean(0).abs().max().item<float>() > 0);
    CHECK(mean(1).abs().max().item<float>() > 0);
    CHECK(!at::equal(mean(0), mean(1)));
    CHECK(at::equal(runs[0].net->norm->running_var, runs[1].net->norm->running_var));
  }
}

TEST_CASE("a rank whose numbers cannot be moves is refused, and no statistic changes") {
  struct Row {
    std::vector<double> sent;  // growth of the counter, micro-batches, moves, and of each move: buffer, keep, channels, what is added
    const char* message;
  };
  const double nan = std::nan("");
  const std::vector<Row> rows = {{{1}, "are cut off"},
                                 {{1, 1, 1, 0, 0.9, 1e18}, "are cut off"},
                                 {{1, 1, 1, 0, 0.9, nan}, "are cut off"},
                                 {{1, 1, 1, -1}, "other buffers"},
                                 {{1, 1, 1, 99}, "other buffers"},
                                 {{1, 1, 1, nan}, "other buffers"}};
  for (const auto& row : rows) {
    CAPTURE(row.sent.size());
    const auto exchange = std::make_shared<Exchange>(static_cast<int>(kTwoRanks));
    std::vector<NormRun> runs;
    for (int r = 0; r < 2; ++r) runs.emplace_back(true, make_rank(exchange, r, false));
    const auto before = runs[0].buffers();
    const auto errors = errors_of_ranks(*exchange, [&](int r) {
      auto& run = runs[static_cast<size_t>(r)];
      if (r == 1) return void(run.strategy->ranks().gather(to_bytes(row.sent)));
      npu_train::detail::RunningStatistics statistics(*run.task, *run.strategy, false);
      statistics.begin_window(1);
      statistics.apply();
    });
    REQUIRE(errors[0].has_value());
    CHECK(errors[0]->kind() == ErrorKind::Peer);
    CHECK(has(errors[0]->what(), row.message));
    CHECK(at::equal(runs[0].net->norm->running_mean, before[0]));
  }
}

TEST_CASE("sync_batchnorm: ranks train and move statistics as one process whose micro-batches are those of all ranks") {
  for (const bool own : {true, false}) {
    CAPTURE(own);
    at::set_num_threads(1);
    NormRun one(own, std::make_shared<SingleDeviceStrategy>(), "32-true");
    const auto expected = one.train(joined_windows());
    const std::vector<std::vector<Batch>> batches[kTwoRanks] = {windows_of(0, 0, 1), windows_of(1, 1, 1)};
    for (const bool synced : {true, false}) {
      CAPTURE(synced);
      const auto exchange = std::make_shared<Exchange>(static_cast<int>(kTwoRanks));
      std::vector<NormRun> runs;
      for (int r = 0; r < 2; ++r) runs.emplace_back(own, make_rank(exchange, r, false), "32-true");
      std::vector<std::vector<at::Tensor>> seen[kTwoRanks];
      on_ranks(*exchange, [&](int r) { seen[r] = runs[static_cast<size_t>(r)].train(batches[r], synced); });
      bool alike = true;
      for (size_t w = 0; w < kRows.size(); ++w)
        for (size_t i = 0; i < expected[w].size(); ++i) {
          CHECK(at::equal(seen[0][w][i], seen[1][w][i]));
          alike = alike && at::allclose(seen[0][w][i], expected[w][i], 1e-4, 1e-5);
        }
      const auto parameters = one.task->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto of_rank = [&](size_t r) { return runs[r].task->parameters()[i].value; };
        CHECK(at::equal(of_rank(0), of_rank(1)));
        alike = alike && at::allclose(of_rank(0), parameters[i].value, 1e-4, 1e-5);
      }
      CHECK(alike == synced);  // without it, every micro-batch is normalised on its own
    }
  }
}
