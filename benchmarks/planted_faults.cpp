// Measures whether compare_dumps finds the faulty layer. Draws faults over all layers of ResNet-50 and ViT-tiny, and pairs of runs that
// differ only in rounding. See tests/tools/align/planted_faults.hpp.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/report/text_table.hpp"
#include "tools/align/planted_faults.hpp"

namespace {

using namespace npu_train;
using namespace npu_train::testing;

const char* name_of(Divergence::Cause cause) {
  constexpr const char* names[] = {"input", "weights", "layer", "before", "gradient", "optimizer", "not finite", "not proven", "model"};
  return names[static_cast<size_t>(cause)];
}

struct Counts {
  int all = 0, right = 0, beyond = 0;
  std::string text() const {
    return std::to_string(right) + " of " + std::to_string(all) + " right (" + std::to_string(beyond) + " beyond tolerance)";
  }
};

class Program {
 public:
  int run(int argc, char** argv) {
    CLI::App app("Plants faults and counts how often the comparison of dumps names the right layer");
    app.add_option("--draws", draws_, "faults");
    app.add_option("--pairs", pairs_, "pairs of runs without one");
    app.add_option("--seed", seed_);
    app.add_option("--task", task_)->check(CLI::IsMember({"tensor", "statistics"}));
    app.add_option("--first", first_, "index of the first draw");
    app.add_flag("--json", json_, "one JSON line instead of tables");
    CLI11_PARSE(app, argc, argv);
    dir_ = std::filesystem::temp_directory_path() / ("planted_faults_" + std::to_string(::getpid()));
    plant();
    pair();
    std::filesystem::remove_all(dir_);
    if (json_)
      std::printf("%s\n", out_.dump().c_str());
    else
      std::printf("equal environments: %s\nrounding noise: %s\npairs without a fault: %d of %d quiet\n", exact_.text().c_str(),
                  noisy_.text().c_str(), quiet_, pairs_);
    return 0;
  }

 private:
  void plant() {
    for (int i = 0; i < draws_; ++i) {
      const auto plan = draw_fault(seed_, static_cast<uint64_t>(first_ + i));
      const auto result = compare_runs(plan, dir_, task_);
      const bool right = is_right(plan, result.first);
      auto& counts = plan.noise == Noise::None ? exact_ : noisy_;
      ++counts.all;
      counts.right += right;
      counts.beyond += !result.agrees;
      const char* verdict = result.agrees ? "within tolerance" : "differs";
      out_["draws"].push_back({{"network", plan.network},
                               {"kind", name_of(*plan.kind)},
                               {"noise", name_of(plan.noise)},
                               {"planted", plan.layer},
                               {"reported", result.first.layer},
                               {"cause", result.first.found ? name_of(result.first.cause) : ""},
                               {"agrees", result.agrees},
                               {"right", right}});
      if (json_) continue;
      std::printf("%3d  %-14s  %-17s  %-14s  %-45s  %-45s  %-10s  %-16s  %s\n", first_ + i, plan.network.c_str(), name_of(*plan.kind),
                  name_of(plan.noise), plan.parameter.c_str(), result.first.layer.c_str(),
                  result.first.found ? name_of(result.first.cause) : "", verdict, right ? "right" : "WRONG");
      if (!right) std::printf("     %s\n", result.first.sentence.c_str());
      std::fflush(stdout);
    }
  }

  void pair() {
    for (int i = 0; i < pairs_; ++i) {
      const auto plan = draw_pair(seed_, static_cast<uint64_t>(first_ + i));
      const auto result = compare_runs(plan, dir_, task_);
      const bool quiet = is_quiet(plan, result);
      quiet_ += quiet;
      int64_t compared = 0, failed = 0;
      for (const auto& step : result.steps) compared += step.compared, failed += step.failed;
      out_["pairs"].push_back({{"network", plan.network}, {"noise", name_of(plan.noise)}, {"quiet", quiet}, {"failed", failed}});
      if (json_) continue;
      std::printf("%3d  %-14s  %-14s  %lld of %lld beyond tolerance  %s  %s\n", first_ + i, plan.network.c_str(), name_of(plan.noise),
                  static_cast<long long>(failed), static_cast<long long>(compared), quiet ? "quiet" : "ALARM",
                  result.first.sentence.c_str());
      std::fflush(stdout);
    }
  }

  int draws_ = 50, pairs_ = 20, first_ = 0;
  uint64_t seed_ = 1;
  std::string task_ = "tensor";
  bool json_ = false;
  std::filesystem::path dir_;
  Counts exact_, noisy_;
  int quiet_ = 0;
  nlohmann::json out_{{"draws", nlohmann::json::array()}, {"pairs", nlohmann::json::array()}};
};

}  // namespace

int main(int argc, char** argv) { return Program().run(argc, argv); }
