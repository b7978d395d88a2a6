/// Measures time and memory of training by phase: an observer of the steps, and its reports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train {

struct ProfilerOptions {
  /// Number of traced windows (optimizer steps), not counting the first window. In a traced window, each operator and declared layer is
  /// recorded with the memory of tensors after it. If there is only one window, it is traced. 0: no window is traced.
  int64_t traced_windows = 0;
  std::shared_ptr<const Clock> clock{};  ///< nullptr: steady_clock()
};

/// One phase of the step, summed over all counted windows.
struct PhaseTime {
  Phase phase = Phase::Forward;
  int64_t calls = 0;
  double seconds = 0;  ///< without the phases that ran inside it
};

/// One event of a traced window. Times are seconds since the construction of the profiler.
struct TraceEvent {
  enum class Kind { Phase, Layer, Operator };
  Kind kind = Kind::Phase;
  std::string name{};   ///< "forward", "layer1.0.conv1", "conv2d"
  std::string layer{};  ///< for an operator: the layer whose parameter it uses, otherwise the declared layer in which it runs; may be empty
  Phase phase = Phase::Forward;
  int64_t window = 0;
  double begin = 0, seconds = 0;
  int64_t bytes = -1;        ///< memory of tensors at the end of the event, see Profile::bytes_above_start; -1: unknown
  bool by_autograd = false;  ///< ran in one of autograd's threads, which run the backward passes of devices
};

/// The result of a profiler.
struct Profile {
  std::string device{};
  int64_t windows = 0;               ///< counted windows: untraced ones after the first; without any, the traced ones; else the first
  double seconds = 0;                ///< time of the counted windows, including the time between them
  std::optional<double> first{};     ///< seconds of the first window, which selects kernels and allocates memory, and is not counted
  bool synchronised = false;         ///< whether the profiler waited for the device at the end of each phase
  bool bytes_above_start = false;    ///< TraceEvent::bytes are relative to the start of the window; otherwise all bytes on the device
  std::vector<PhaseTime> phases{};   ///< longest first
  std::vector<TraceEvent> events{};  ///< from the traced windows, ordered by their ends

  /// Returns the seconds outside of all phases: reading the loss, EMA, the loop.
  double between() const;
};

/// Returns sentences about phases that take more time than they should, each with a remedy; empty if there are none.
std::vector<std::string> advice(const Profile& profile);

/// Reports phases and advice. For a traced profile, adds the operators and layers by time and, only on the page, the memory of a window.
Report report_of(const Profile& profile);
/// Writes the events as JSON for chrome://tracing and https://ui.perfetto.dev (Trace Event Format, complete events "X" in microseconds,
/// counters "C" in bytes).
void write_chrome_trace(const Profile& profile, std::ostream& out);

/// Returns the command that runs `program` under the device's own profiler (nsys for cuda, msprof for npu); "" for other kinds of devices.
/// `program` defaults to the command line of this process.
std::string profiler_command(const Device& device, const std::string& program = "");

/// Times the phases of training steps. Attach it to a trainer (Trainer::add_observer, or `trainer.profiler` in a configuration), or call
/// phase_begin and phase_end around parts of your own loop, on one thread.
///
/// On an asynchronous device, the profiler waits at the end of each phase, because launch times mean nothing. Work that usually overlaps
/// therefore does not overlap under the profiler. Phases and layers are marked for the device's own profiler (NVTX, mstx) if libtorch or
/// torch_npu has registered such marks. Operators are timed by the host's clock.
class Profiler : public StepObserver, private OpListener {
 public:
  /// `parameters` determine the names of layers in a trace.
  Profiler(Device device, ParameterSet parameters, ProfilerOptions options = {});
  ~Profiler() override;

  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;

  /// Returns the profile so far.
  Profile profile() const;

 private:
  struct Impl;
  void op_begins(const SeenOp& op) override;
  void op_ended(const SeenOp& op) override;
  void layer_begins(const SeenLayer& layer) override;
  void layer_ended(const SeenLayer& layer) override;
  bool sees_all() const override { return true; }

  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
