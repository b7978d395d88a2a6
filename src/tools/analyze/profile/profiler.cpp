#include "npu_train/tools/analyze/profiler.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <unordered_map>

#include "npu_train/device/backend.hpp"
#include "npu_train/device/live_bytes.hpp"
#include "tools/analyze/profile/range_marks.hpp"

namespace npu_train {
namespace {

constexpr size_t kPhases = 11;
static_assert(static_cast<size_t>(Phase::Checkpoint) + 1 == kPhases);

/// Whether the phase may occur before the first window.
bool stands_apart(Phase phase) { return phase == Phase::Callbacks || phase == Phase::Validation || phase == Phase::Checkpoint; }

bool computes(Phase phase) { return phase >= Phase::Forward && phase <= Phase::Optimizer; }

std::string layer_of(const SeenOp& op) {
  const auto layer = npu_train::layer_of(op.parameter);
  return layer.empty() ? op.scope : layer;
}

}  // namespace

struct Profiler::Impl {
  struct Open {
    Phase phase;
    double begin, inside = 0;  // inside: seconds of phases inside this one
  };
  struct Sums {
    std::array<PhaseTime, kPhases> phases{};
    int64_t windows = 0;
    double begin = -1, end = -1;
  };

  Device device;
  ParameterSet parameters;
  ProfilerOptions options;
  RangeMarks marks;
  std::shared_ptr<const Clock> clock;
  double made;
  bool waits = false;

  std::optional<int64_t> first_attempt, attempt, forward_attempt;
  Sums first, traced, rest;
  std::vector<Open> open;

  bool tracing = false;
  std::optional<LiveBytes> live;
  std::unique_ptr<OpObserver> observer;
  size_t observed_depth = 0;  // depth of the phase during which the observer was created
  std::vector<double> layers_begun;
  std::unordered_map<std::thread::id, double> ops_begun;  // start of the operator, by thread (the loop's or autograd's)
  std::thread::id thread = std::this_thread::get_id();
  std::vector<TraceEvent> events;

  Impl(Device d, ParameterSet p, ProfilerOptions o)
      : device(std::move(d)),
        parameters(std::move(p)),
        options(std::move(o)),
        marks(device),
        clock(options.clock != nullptr ? options.clock : steady_clock()),
        made(clock->now()) {
    waits = backend_of(device).capabilities(device).streams;
  }

  double now() const { return clock->now() - made; }
  Sums& sums() { return attempt == first_attempt ? first : tracing ? traced : rest; }

  void enter_window(int64_t next) {
    if (attempt == next) return;
    if (!first_attempt) first_attempt = next;
    attempt = next;
    const auto index = next - *first_attempt;
    tracing = index <= options.traced_windows && options.traced_windows > 0;
    if (auto& here = sums(); here.begin < 0) here.begin = now();
    live.reset();  // reset before the next one is created, since they nest
    if (tracing && device.is_cpu()) live.emplace();
  }

  int64_t bytes() const {
    if (live) return live->now();
    return device.is_cpu() ? -1 : backend_of(device).memory(device).allocated;
  }

  void note(TraceEvent::Kind kind, const std::string& name, const std::string& layer, double begin) {
    events.push_back({.kind = kind,
                      .name = name,
                      .layer = layer,
                      .phase = open.empty() ? Phase::Forward : open.back().phase,
                      .window = *attempt,
                      .begin = begin,
                      .seconds = now() - begin,
                      .bytes = bytes(),
                      .by_autograd = std::this_thread::get_id() != thread});
  }

  /// Ends the innermost phase.
  void close() {
    const auto done = open.back();
    const auto took = now() - done.begin;
    auto& here = sums();
    auto& time = here.phases[static_cast<size_t>(done.phase)];
    ++time.calls;
    time.seconds += took - done.inside;
    here.end = now();
    if (tracing) note(TraceEvent::Kind::Phase, phase_name(done.phase), "", done.begin);
    open.pop_back();
    if (!open.empty()) open.back().inside += took;
    marks.pop();
  }
};

Profiler::Profiler(Device device, ParameterSet parameters, ProfilerOptions options)
    : impl_(std::make_unique<Impl>(std::move(device), std::move(parameters), std::move(options))) {}
Profiler::~Profiler() = default;

void Profiler::phase_begin(Phase phase, int64_t attempt, int /*micro_batch*/) {
  auto& p = *impl_;
  if (!p.first_attempt && stands_apart(phase)) return;
  if (p.open.empty()) p.enter_window(attempt);
  if (phase == Phase::Forward && p.forward_attempt != attempt) {  // a wait for data at the end does not begin a window
    p.forward_attempt = attempt;
    ++p.sums().windows;
    if (attempt == *p.first_attempt + 1)  // events of the first window are kept only if there is no other
      std::erase_if(p.events, [&](const TraceEvent& event) { return event.window == *p.first_attempt; });
  }
  p.marks.push(phase_name(phase));
  p.open.push_back({phase, p.now()});
  if (!p.tracing || p.observer || !computes(phase)) return;
  p.observed_depth = p.open.size();
  p.thread = std::this_thread::get_id();
  // make_unique has no access to the private base class.
  p.observer.reset(new OpObserver(p.parameters, static_cast<OpListener&>(*this), /*every=*/true));
}

void Profiler::phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  auto& p = *impl_;
  if (p.open.empty() || p.open.back().phase != phase) return;  // the phase began before this observer was added
  std::exception_ptr error;
  if (p.observer && p.observed_depth == p.open.size()) {
    error = p.observer->error();
    p.observer.reset();
  }
  if (p.waits && phase != Phase::DataWait) backend_of(p.device).synchronize(p.device);
  p.close();
  if (error != nullptr) std::rethrow_exception(error);
}

void Profiler::phase_error(Phase phase, int64_t /*attempt*/, int /*micro_batch*/, std::exception_ptr /*error*/) {
  auto& p = *impl_;
  if (p.open.empty() || p.open.back().phase != phase) return;
  if (p.observer && p.observed_depth == p.open.size()) p.observer.reset();
  for (; !p.layers_begun.empty(); p.layers_begun.pop_back()) p.marks.pop();
  p.close();
}

void Profiler::op_begins(const SeenOp& /*op*/) { impl_->ops_begun[std::this_thread::get_id()] = impl_->now(); }

void Profiler::op_ended(const SeenOp& op) {
  auto& p = *impl_;
  const bool of_all = !p.open.empty() && p.open.back().phase > Phase::Backward;  // such operators may use the parameters of all layers
  p.note(TraceEvent::Kind::Operator, op.name, of_all ? "" : layer_of(op), p.ops_begun[std::this_thread::get_id()]);
}

void Profiler::layer_begins(const SeenLayer& layer) {
  impl_->marks.push(layer.path);
  impl_->layers_begun.push_back(impl_->now());
}

void Profiler::layer_ended(const SeenLayer& layer) {
  if (impl_->layers_begun.empty()) return;  // the layer began before the phase
  impl_->note(TraceEvent::Kind::Layer, layer.path, layer.path, impl_->layers_begun.back());
  impl_->layers_begun.pop_back();
  impl_->marks.pop();
}

Profile Profiler::profile() const {
  const auto& p = *impl_;
  const auto& counted = p.rest.windows > 0 ? p.rest : p.traced.windows > 0 ? p.traced : p.first;
  Profile out;
  out.device = p.device.str();
  out.windows = counted.windows;
  out.seconds = counted.end - counted.begin;
  if (&counted != &p.first) out.first = p.first.end - p.first.begin;
  out.synchronised = p.waits;
  out.bytes_above_start = p.device.is_cpu();
  for (size_t i = 0; i < kPhases; ++i) {
    if (counted.phases[i].calls == 0) continue;
    out.phases.push_back(counted.phases[i]);
    out.phases.back().phase = static_cast<Phase>(i);
  }
  std::stable_sort(out.phases.begin(), out.phases.end(), [](const PhaseTime& a, const PhaseTime& b) { return a.seconds > b.seconds; });
  for (const auto& event : p.events)  // events after the last window belong to no window
    if (p.forward_attempt && event.window <= *p.forward_attempt) out.events.push_back(event);
  return out;
}

}  // namespace npu_train
