#include <algorithm>

#include "npu_train/tools/analyze/profiler.hpp"

namespace npu_train {
namespace {

constexpr int kLane[] = {1, 2, 3}, kAutogradLane = 4;  // one lane per kind and thread, since events of one lane must nest

Json lane_name(int lane, const char* name) {
  return Json::object({{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", lane}, {"args", Json::object({{"name", name}})}});
}

Json stretch(const TraceEvent& event) {
  auto args = Json::object({{"window", event.window}});
  if (!event.layer.empty() && event.kind == TraceEvent::Kind::Operator) args.set("layer", event.layer);
  return Json::object({{"ph", "X"},
                       {"name", event.name},
                       {"cat", phase_name(event.phase)},
                       {"pid", 1},
                       {"tid", event.by_autograd ? kAutogradLane : kLane[static_cast<int>(event.kind)]},
                       {"ts", 1e6 * event.begin},
                       {"dur", 1e6 * event.seconds},
                       {"args", std::move(args)}});
}

Json counter(const TraceEvent& event, const char* name) {
  return Json::object({{"ph", "C"},
                       {"name", name},
                       {"pid", 1},
                       {"tid", 0},
                       {"ts", 1e6 * (event.begin + event.seconds)},
                       {"args", Json::object({{"bytes", event.bytes}})}});
}

}  // namespace

void write_chrome_trace(const Profile& profile, std::ostream& out) {
  const char* memory = profile.bytes_above_start ? "tensors, relative to the window's start" : "allocated on the device";
  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" << lane_name(1, "phases").dump(0);
  out << ",\n" << lane_name(2, "layers").dump(0) << ",\n" << lane_name(3, "operators").dump(0);
  const auto by_autograd = [](const TraceEvent& event) { return event.by_autograd; };
  if (std::any_of(profile.events.begin(), profile.events.end(), by_autograd))
    out << ",\n" << lane_name(kAutogradLane, "operators in autograd's thread").dump(0);
  for (const auto& event : profile.events) {
    out << ",\n" << stretch(event).dump(0);
    if (event.bytes >= 0) out << ",\n" << counter(event, memory).dump(0);
  }
  out << "\n]}\n";
}

}  // namespace npu_train
