#include "npu_train/tools/memory/leak_watch.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "npu_train/core/log.hpp"
#include "npu_train/core/median.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

constexpr int64_t kEvery = 10, kLaterEvery = 50, kWarmUp = 20, kSteps = 200;
constexpr size_t kSamples = kSteps / kEvery;
constexpr double kLargestRest = 0.15;  // share of the growth that a straight line may leave unexplained

struct Kind {
  const char* name;
  double least;  // smallest growth per step that is reported
  bool bytes;
  const char* hint;
  bool lists_handles = false;
};

constexpr Kind kKindsOfLeaks[] = {
    {"memory of the device", 1024, true, "a tensor that is kept in each step also keeps its graph; keep only its .detach() or .item()"},
    {"memory of the host", 65536, true, "look for lists that grow with each step, and for tensors that are kept with their graphs"},
    {"file handles", 0.05, false, "ls -l /proc/PID/fd lists them; a data set or a callback opens files without closing them", true},
    {"threads", 0.05, false, "a data set or a callback starts threads and does not end them"}};

// Returns the most frequent target of open handles, as "; 180 of 207 are /dev/null"; "" if no two are alike. Sockets and pipes are counted
// by kind.
std::string most_handles() {
  std::map<std::string, int64_t> targets;
  int64_t all = 0;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator("/proc/self/fd", error); !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    std::error_code gone;
    auto target = std::filesystem::read_symlink(entry->path(), gone).string();
    if (gone) continue;
    if (!target.starts_with('/')) target = target.substr(0, target.find(':')) + "s";
    ++targets[target];
    ++all;
  }
  const auto most = std::max_element(targets.begin(), targets.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == targets.end() || most->second < 2) return "";
  return str_cat("; ", most->second, " of ", all, " are ", detail::visible_start(most->first, 200));
}

std::string amount(const Kind& kind, double value) { return kind.bytes ? human_bytes(value) : short_number(value, 3); }

}  // namespace

ProcessUse process_use(const Device& device) {
  ProcessUse out;
  if (!device.is_cpu()) out.device_bytes = backend_of(device).memory(device).allocated;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) out.host_bytes = std::strtoll(line.c_str() + 8, nullptr, 10) * 1024;
    if (line.starts_with("Threads:")) out.threads = std::strtoll(line.c_str() + 8, nullptr, 10);
  }
  std::error_code error;
  auto entry = std::filesystem::directory_iterator("/proc/self/fd", error);
  if (!error) {
    out.handles = 0;
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++out.handles;
  }
  return out;
}

std::optional<double> steady_growth(const std::vector<std::pair<double, double>>& samples, double least) {
  constexpr size_t kParts = 4;
  if (samples.size() < 2 * kParts) return std::nullopt;
  std::vector<double> slopes;
  for (size_t i = 0; i < samples.size(); ++i)
    for (size_t j = i + 1; j < samples.size(); ++j)
      slopes.push_back((samples[j].second - samples[i].second) / (samples[j].first - samples[i].first));
  const double slope = upper_median(slopes);
  if (!(slope >= least)) return std::nullopt;
  double before = -std::numeric_limits<double>::infinity();
  for (size_t part = 0; part < kParts; ++part) {
    std::vector<double> values;
    for (size_t i = part * samples.size() / kParts; i < (part + 1) * samples.size() / kParts; ++i) values.push_back(samples[i].second);
    const double now = upper_median(values);
    if (now <= before) return std::nullopt;
    before = now;
  }
  std::vector<double> rests;
  for (const auto& [x, y] : samples) rests.push_back(y - slope * x);
  const double line = upper_median(rests);
  for (auto& rest : rests) rest = std::abs(rest - line);
  std::sort(rests.begin(), rests.end());
  const double growth = slope * (samples.back().first - samples.front().first);
  if (rests[rests.size() * 9 / 10] > kLargestRest * growth) return std::nullopt;
  return slope;
}

void LeakWatch::on_step_end(TrainLoop& loop, const StepReport& /*report*/) {
  ++steps_;
  if (steps_ % (steps_ <= kSteps ? kEvery : kLaterEvery) != 0 || steps_ < kWarmUp) return;
  note(steps_, read_(loop.parts().device));
  if (steps_ >= kSteps) judge();
}

void LeakWatch::note(int64_t step, const ProcessUse& use) {
  const auto value = [](int64_t n) { return static_cast<double>(n); };
  samples_.push_back({value(step), {value(use.device_bytes), value(use.host_bytes), value(use.handles), value(use.threads)}});
  if (samples_.size() > kSamples) samples_.pop_front();
}

void LeakWatch::judge() {
  for (size_t k = 0; k < kKinds; ++k) {
    if (told_[k] || samples_.front().second[k] < 0) continue;
    std::vector<std::pair<double, double>> row;
    for (const auto& [step, values] : samples_) row.emplace_back(step, values[k]);
    const auto& kind = kKindsOfLeaks[k];
    const auto slope = steady_growth(row, kind.least);
    if (!slope) continue;
    told_[k] = true;
    const auto at = [&](const std::pair<double, double>& s) { return amount(kind, s.second) + " at step " + short_number(s.first, 12); };
    findings_.push_back(str_cat(kind.name, kind.bytes ? " grows by " : " grow by ", amount(kind, *slope), " per step (", at(row.front()),
                                ", ", at(row.back()), ")"));
    log_warning("leak: ", findings_.back(), kind.lists_handles ? most_handles() : std::string(), "; hint: ", kind.hint);
  }
}

void add_leak_watch(Parts& parts) {
  struct Watch final : RunObserver {
    void on_setup(const RunView& run) override { run.loop->add_callback(std::make_shared<LeakWatch>()); }
  };
  parts.observers.add("leak_watch", "warns about memory, handles and threads that grow from step to step",
                      [] { return std::make_unique<Watch>(); });
}

}  // namespace npu_train
