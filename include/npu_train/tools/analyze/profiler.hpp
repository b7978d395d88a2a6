/// Where the time and the memory of training go: an observer of the steps, and what it says.
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
#include "npu_train/io/json.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train {

struct ProfilerOptions {
  /// Also each operator and declared layer, and what tensors hold after it, of so many windows (optimizer steps) after the first, or of
  /// the first where there is no other; 0: none.
  int64_t traced_windows = 0;
  std::shared_ptr<const Clock> clock{};  ///< nullptr: steady_clock()
};

/// One phase of the step, summed over all counted windows.
struct PhaseTime {
  Phase phase = Phase::Forward;
  int64_t calls = 0;
  double seconds = 0;  ///< without phases that ran inside it
};

/// One stretch of a traced window. Times are seconds since the profiler was made.
struct TraceEvent {
  enum class Kind { Phase, Layer, Operator };
  Kind kind = Kind::Phase;
  std::string name{};   ///< "forward", "layer1.0.conv1", "conv2d"
  std::string layer{};  ///< of an operator: whose parameter it takes, else the declared layer that it runs in; may be empty
  Phase phase = Phase::Forward;
  int64_t window = 0;
  double begin = 0, seconds = 0;
  int64_t bytes = -1;        ///< what tensors held at its end, see Profile::bytes_above_start; -1: not known
  bool by_autograd = false;  ///< in a thread of autograd's own, where backward passes of devices run
};

/// What a profiler saw.
struct Profile {
  std::string device{};
  int64_t windows = 0;               ///< counted ones: those after the first and the traced ones, else the traced ones, else the first
  double seconds = 0;                ///< of the counted windows, with what ran between them
  std::optional<double> first{};     ///< seconds of the first window, which is not counted: kernels are chosen and memory is taken there
  bool synchronised = false;         ///< the device was waited for at the end of each phase
  bool bytes_above_start = false;    ///< TraceEvent::bytes count from the start of the window, else they are all that the device holds
  std::vector<PhaseTime> phases{};   ///< longest first
  std::vector<TraceEvent> events{};  ///< of the traced windows, in the order of their ends

  /// Seconds outside all phases: reading the loss, EMA, the loop.
  double between() const;
};

/// Sentences about what takes more of the time than it should, with what to change; empty where nothing stands out.
std::vector<std::string> advice(const Profile& profile);

/// A table for a terminal or a log.
std::string to_text(const Profile& profile);
/// Phases, advice, and of a traced profile the operators and layers by time.
Json to_json(const Profile& profile);
/// One self-contained page; of a traced profile with the memory of a window by layer.
std::string to_html(const Profile& profile);
/// The events in the JSON that chrome://tracing and https://ui.perfetto.dev read (Trace Event Format, complete events "X" in microseconds,
/// counters "C" in bytes).
void write_chrome_trace(const Profile& profile, std::ostream& out);

/// The command that runs `program` under the device's own profiler (nsys for cuda, msprof for npu); "" for other kinds. "": this process,
/// as it was called.
std::string profiler_command(const Device& device, const std::string& program = "");

/// Times the phases of training steps. Give it to a trainer (Trainer::add_observer, or `trainer.profiler` in a configuration), or call
/// phase_begin and phase_end around parts of a loop of your own; from one thread.
///
/// On a device that works behind the host's back each phase ends by waiting for it, since times of launches say nothing: what overlaps
/// otherwise does not overlap under the profiler. Phases and layers are marked for the device's own profiler (NVTX, mstx) where libtorch
/// or torch_npu has registered such marks. Operators are timed on the host's clock.
class Profiler : public StepObserver, private OpListener {
 public:
  /// `parameters` name the layers of a trace.
  Profiler(Device device, ParameterSet parameters, ProfilerOptions options = {});
  ~Profiler() override;

  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;

  /// Of what ran so far.
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
