#include "npu_train/tools/bench/power_meter.hpp"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr const char* kPowercap = "/sys/class/powercap";
constexpr double kLeastSeconds = 2;  // for a device: its tool reports an average over about one second

std::optional<uint64_t> whole_number(const std::optional<std::string>& text) {
  uint64_t out = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), out);
  return error == std::errc() ? std::optional(out) : std::nullopt;
}

/// Parses the number at the start of `text`, after blanks.
std::optional<double> leading_number(const std::string& text) {
  std::istringstream in(text);
  std::string word;
  in >> word;
  const auto out = decimal_number(word.substr(0, word.find_first_not_of("+-.0123456789")));
  return out && *out >= 0 ? out : std::nullopt;
}

std::string why_failed(const std::string& program, const CommandResult& result) {
  switch (result.end) {
    case CommandResult::End::NotFound:
      return program + " is not installed";
    case CommandResult::End::TimedOut:
      return program + " does not respond";
    case CommandResult::End::Signalled:
      return program + " was terminated by signal " + std::to_string(result.status);
    case CommandResult::End::Exited:
      break;
  }
  const auto said = detail::first_line(result.output).substr(0, 120);
  if (result.status != 0) return program + " failed with exit code " + std::to_string(result.status) + ": " + said;
  return program + " reports no power: '" + said + "'";
}

/// Returns entry `index` of a list of visible devices; `index` itself if no list is set.
std::string visible(const std::string& list, int index) {
  std::istringstream in(list);
  std::string entry;
  for (int i = 0; std::getline(in, entry, ','); ++i)
    if (i == index && list.find('-') == std::string::npos) return entry;  // names of GPUs and ranges are not resolved
  return std::to_string(index);
}

/// Returns the watts in the output of `npu-smi info -t power`: "NPU Real-time Power(W) : 161.2", "Power Dissipation(W) : 12.8".
std::optional<double> npu_watts(const std::string& output) {
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    const auto name = line.substr(0, colon);
    if (colon == std::string::npos || name.find("Power") == std::string::npos || name.find("(W)") == std::string::npos) continue;
    if (name.find("Rated") != std::string::npos || name.find("Limit") != std::string::npos) continue;
    if (const auto watts = leading_number(line.substr(colon + 1))) return watts;
  }
  return std::nullopt;
}

/// Returns card and chip of a logical number, from the rows "NPU ID, Chip ID, Chip Logic ID, name" of `npu-smi info -m`; without a matching
/// row, the number itself and 0.
std::pair<std::string, std::string> card_and_chip(const std::string& mapping, const std::string& logical) {
  std::istringstream in(mapping);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string npu, chip, logic;
    if (words >> npu >> chip >> logic && logic == logical) return {npu, chip};
  }
  return {logical, "0"};
}

}  // namespace

struct PowerMeter::Impl {
  struct RaplZone {
    std::string file;
    uint64_t range = 0, last = 0;  // microjoules; range 0: unknown
  };
  HostView host;
  Device device;
  std::chrono::milliseconds period;
  std::string host_why, device_why;
  std::vector<RaplZone> zones;
  std::vector<std::string> command;  // command that reports the device's power; empty: none

  std::shared_ptr<const Clock> clock;
  double begun = 0;
  std::mutex mutex;
  std::condition_variable ends;
  bool ending = false, host_failed = false;
  double host_joules = 0;
  std::vector<double> watts;
  std::thread thread;

  Impl(HostView h, Device d, std::chrono::milliseconds p, std::shared_ptr<const Clock> c)
      : host(std::move(h)), device(std::move(d)), period(p), clock(std::move(c)) {
    find_zones();
    find_command();
    if (period.count() == 0) period = std::chrono::milliseconds(command.empty() ? 10'000 : 500);
  }

  void find_zones() {
    if (!host.is_folder(kPowercap)) {
      host_why = std::string("no ") + kPowercap + ": this kernel has no RAPL counters, or a virtual machine or container hides them";
      return;
    }
    for (const auto& name : host.list(kPowercap)) {
      const auto folder = std::string(kPowercap) + "/" + name;
      const auto kind = host.read(folder + "/name").value_or("");
      if (!name.starts_with("intel-rapl:") || !(kind.starts_with("package") || kind.starts_with("dram"))) continue;
      RaplZone zone{folder + "/energy_uj", whole_number(host.read(folder + "/max_energy_range_uj")).value_or(0), 0};
      if (!whole_number(host.read(zone.file))) {
        host_why = zone.file + " cannot be read by this user; hint: as root, chmod a+r it, or run as root";
        zones.clear();
        return;
      }
      zones.push_back(std::move(zone));
    }
    if (zones.empty()) host_why = std::string(kPowercap) + " has no RAPL zone of a processor";
  }

  void find_command() {
    if (device.kind == "cuda") {
      command = {"nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-i",
                 visible(host.variable("CUDA_VISIBLE_DEVICES"), device.index)};
    } else if (device.kind == "npu") {
      const auto logical = visible(host.variable("ASCEND_RT_VISIBLE_DEVICES"), device.index);
      const auto [card, chip] = card_and_chip(host.run({"npu-smi", "info", "-m"}).output, logical);
      command = {"npu-smi", "info", "-t", "power", "-i", card, "-c", chip};
    } else if (!device.is_cpu()) {
      device_why = device.str() + " has no power consumption of its own";
    }
    if (command.empty()) return;
    const auto result = host.run(command);
    if (power(result)) return;
    device_why = why_failed(command.front(), result);
    command.clear();
  }

  std::optional<double> power(const CommandResult& result) const {
    if (!result.ok()) return std::nullopt;
    return device.kind == "cuda" ? leading_number(result.output) : npu_watts(result.output);
  }

  /// Adds the increase of the counters since the previous reading.
  void read_zones(bool first) {
    for (auto& zone : zones) {
      const auto now = whole_number(host.read(zone.file));
      if (!now) {
        host_failed = true;
        continue;
      }
      if (!first) host_joules += 1e-6 * static_cast<double>(*now >= zone.last ? *now - zone.last : *now + zone.range - zone.last);
      zone.last = *now;
    }
  }

  void watch() {
    std::unique_lock lock(mutex);
    while (!ends.wait_for(lock, period, [&] { return ending; })) {
      read_zones(false);
      if (command.empty()) continue;
      lock.unlock();  // while the tool runs, stop() can already read the counters
      const auto seen = power(host.run(command));
      lock.lock();
      if (seen && !ending) watts.push_back(*seen);
    }
  }
};

PowerMeter::PowerMeter(HostView host, Device device, std::chrono::milliseconds period, std::shared_ptr<const Clock> clock)
    : impl_(std::make_unique<Impl>(std::move(host), std::move(device), period, std::move(clock))) {}

PowerMeter::~PowerMeter() {
  if (impl_->thread.joinable()) stop();
}

void PowerMeter::start() {
  auto& m = *impl_;
  if (m.thread.joinable()) stop();
  m.ending = m.host_failed = false;
  m.host_joules = 0;
  m.watts.clear();
  m.read_zones(true);
  m.begun = m.clock->now();
  if (!m.zones.empty() || !m.command.empty()) m.thread = std::thread([&m] { m.watch(); });
}

EnergyReading PowerMeter::stop() {
  auto& m = *impl_;
  EnergyReading out;
  if (!m.thread.joinable()) return out;
  {
    const std::lock_guard lock(m.mutex);
    m.read_zones(false);
    out.seconds = m.clock->now() - m.begun;
    m.ending = true;
  }
  m.ends.notify_all();
  m.thread.join();
  if (!m.zones.empty() && !m.host_failed) out.host_joules = m.host_joules;
  if (m.watts.size() >= 2 && out.seconds >= kLeastSeconds)
    out.device_joules = std::accumulate(m.watts.begin(), m.watts.end(), 0.0) / static_cast<double>(m.watts.size()) * out.seconds;
  return out;
}

const std::string& PowerMeter::host_why() const { return impl_->host_why; }
const std::string& PowerMeter::device_why() const { return impl_->device_why; }

}  // namespace npu_train
