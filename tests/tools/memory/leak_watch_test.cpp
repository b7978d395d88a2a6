#include "testing.hpp"

#include <fcntl.h>
#include <torch/nn.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "npu_train/core/log.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/memory/leak_watch.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Parts with_watch() {
  auto parts = builtin_parts();
  add_leak_watch(parts);
  return parts;
}

using LeakRow = std::vector<std::pair<double, double>>;

LeakRow row_of(const std::function<double(double)>& f) {
  LeakRow out;
  for (double step = 20; step <= 200; step += 10) out.emplace_back(step, f(step));
  return out;
}

// Trains 220 steps, calls `each` after every step, and returns the warnings about leaks.
std::string watched(const std::function<void(TrainLoop&)>& each, const std::string& device = "cpu") {
  struct Plant final : Callback {
    explicit Plant(std::function<void(TrainLoop&)> f) : each(std::move(f)) {}
    void on_step_end(TrainLoop& loop, const StepReport&) override { each(loop); }
    std::function<void(TrainLoop&)> each;
  };
  std::string said;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning && text.starts_with("leak")) said += std::string(text) + "\n";
  });
  RunConfig config{.device = device, .precision = "32-true"};
  config.data.options = {{"batch_size", 4}, {"num_workers", "0"}};
  config.trainer = {.max_epochs = -1, .max_steps = 220, .threads = 1};
  config.output.dir = "";
  Trainer trainer(config, with_watch());
  trainer.add_callback(std::make_shared<Plant>(each));
  trainer.fit(classifier(torch::nn::Linear(6, 3)),
              std::make_shared<TensorDataset>(torch::randn({64, 6}), torch::zeros({64}, torch::kLong), 3));
  return said;
}

}  // namespace

TEST_CASE("growth is reported if it is steady") {
  CHECK(*steady_growth(row_of([](double s) { return 40 + s; }), 0.05) == doctest::Approx(1));
  CHECK(*steady_growth(row_of([](double s) { return 3 * s + (static_cast<int>(s) / 10 % 2) * 20; }), 0.05) ==
        doctest::Approx(3).epsilon(0.1));
  const auto noisy = steady_growth(row_of([](double s) { return 2 * s + (s == 70 ? 900 : 0); }), 0.05);  // one outlier
  CHECK(noisy);
  CHECK(*noisy == doctest::Approx(2).epsilon(0.05));
}

TEST_CASE("what warms up, jumps, swings or hardly grows is none") {
  CHECK_FALSE(steady_growth(row_of([](double) { return 5; }), 0.05));
  CHECK_FALSE(steady_growth(row_of([](double s) { return s < 60 ? s : 60; }), 0.05));
  CHECK_FALSE(steady_growth(row_of([](double s) { return 1000 * (1 - std::exp(-s / 30)); }), 0.05));
  CHECK_FALSE(steady_growth(row_of([](double s) { return s < 110 ? 0 : 100; }), 0.05));
  CHECK_FALSE(steady_growth(row_of([](double s) { return 100 * std::sin(s / 15); }), 0.05));
  CHECK_FALSE(steady_growth(row_of([](double s) { return 0.01 * s; }), 0.05));
  CHECK_FALSE(steady_growth(row_of([](double s) { return -s; }), 0.05));
  CHECK_FALSE(steady_growth({{1, 1}, {2, 2}}, 0.05));
}

TEST_CASE("planted leaks are named with what they grow by") {
  start_sim_npu({});  // the simulator must exist before the first backward pass, when autograd counts the devices
  SUBCASE("none") {
    CHECK(watched([](TrainLoop&) {}) == "");
  }
  SUBCASE("file handles") {
    std::vector<int> open;
    const auto said = watched([&](TrainLoop&) { open.push_back(::open("/dev/null", O_RDONLY)); });
    for (const int fd : open) ::close(fd);
    CHECK_MESSAGE(has(said, "leak: file handles grow by 1 per step ("), said);
    CHECK(has(said, "at step 200)"));
    CHECK(said.find("grow", said.find("grow") + 4) == std::string::npos);  // one line
  }
  SUBCASE("threads") {
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    int64_t step = 0;
    const auto said = watched([&](TrainLoop&) {
      if (++step % 4 == 0) threads.emplace_back([&] { done.wait(false); });
    });
    done = true;
    done.notify_all();
    for (auto& t : threads) t.join();
    CHECK_MESSAGE(has(said, "leak: threads grow by 0.25 per step ("), said);
  }
  SUBCASE("memory of the host") {
    std::vector<std::string> kept;
    const auto said = watched([&](TrainLoop&) { kept.emplace_back(512 << 10, 'x'); });
    CHECK_MESSAGE(has(said, "leak: memory of the host grows by 51"), said);  // 512 KiB or a little more
  }
  SUBCASE("memory of the device") {
    std::vector<at::Tensor> kept;
    const auto said = watched([&](TrainLoop& loop) { kept.push_back(torch::zeros({1000}, loop.parts().device.c10())); }, "sim_npu");
    CHECK_MESSAGE(has(said, "leak: memory of the device grows by 3.9 KiB per step ("), said);
  }
}

TEST_CASE("a data set that leaks in the threads of the loader is named in the run's log") {
  struct Leaking final : Dataset {
    ~Leaking() override {
      for (const int fd : open) ::close(fd);
    }
    int64_t size() const override { return 64; }
    Sample get(int64_t index) const override {
      const std::lock_guard<std::mutex> lock(mutex);
      open.push_back(::open("/dev/null", O_RDONLY));
      return {{{"input", torch::zeros({6})}, {"target", torch::tensor(int64_t{0})}}, index};
    }
    DatasetInfo info() const override {
      DatasetInfo info;
      info.name = "leaking";
      info.num_classes = 3;
      return info;
    }
    mutable std::mutex mutex;
    mutable std::vector<int> open;
  };
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.data.options = {{"batch_size", 2}, {"num_workers", "2"}};
  config.trainer = {.max_epochs = -1, .max_steps = 220, .threads = 1};
  config.output.dir = dir.path().string();
  Trainer trainer(config, with_watch());
  const auto result = trainer.fit(classifier(torch::nn::Linear(6, 3)), std::make_shared<Leaking>());
  std::stringstream log;
  log << std::ifstream(std::filesystem::path(result.run_dir) / "train.log").rdbuf();
  const std::string logged = log.str(), begin = "leak: file handles grow by ";
  REQUIRE_MESSAGE(has(logged, begin), logged);
  const double growth = std::stod(logged.substr(logged.find(begin) + begin.size()));
  CHECK(growth == doctest::Approx(2).epsilon(0.05));  // two samples a step; the loader may be a few batches ahead when a step is counted
  CHECK_MESSAGE(has(logged, " are /dev/null; hint: "), logged);
  CHECK(has(logged, "ls -l /proc/PID/fd lists them"));
}

TEST_CASE("the resources of a process") {
  const auto before = process_use({});
  const int fd = ::open("/dev/null", O_RDONLY);
  const auto after = process_use({});
  ::close(fd);
  CHECK(before.device_bytes == -1);
  CHECK(before.host_bytes > 0);
  CHECK(before.threads >= 1);
  CHECK(after.handles == before.handles + 1);
}
