#include "npu_train/tools/align/dumper.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/task.hpp"
#include "tools/align/dump_places.hpp"
#include "tools/align/dump_recorder.hpp"

namespace npu_train {

DumpedModel dumped_model(const torch::nn::Module& module) {
  return {.parameters = parameters_of(module), .buffers = buffers_of(module), .types = module_types(module)};
}

DumpedModel dumped_model(Task& task) { return {.parameters = task.parameters(), .buffers = task.buffers(), .types = task.module_types()}; }

namespace {

// Describes the part of the calls that the options select, so that a comparison does not report calls outside of this part as missing.
// Returns "" if the options select all calls.
std::string part_of(const DumpOptions& options) {
  std::vector<std::string> out;
  const std::pair<const char*, const std::vector<std::string>*> parts[] = {
      {"scope", &options.scope}, {"list", &options.list}, {"data_mode", &options.data_mode}};
  for (const auto& [name, value] : parts)
    if (!value->empty()) out.push_back(std::string(name) + ": " + join(*value));
  return join(out, "; ");
}

std::string asked_for(const DumpOptions& options) {
  const auto part = part_of(options);
  return part + (part.empty() ? "" : "; ") + "level: " + options.level +
         (options.sample < 1 ? "; sample: " + shortest(options.sample) : std::string());
}

}  // namespace

struct Dumper::Impl {
  Impl(const DumpOptions& options, int of_rank, std::map<std::string, std::string> noted)
      : steps(options.steps),
        rank_wanted(options.ranks.empty() || std::find(options.ranks.begin(), options.ranks.end(), of_rank) != options.ranks.end()),
        rank(of_rank),
        facts(std::move(noted)),
        sink(options.format == "npy", options.async) {}

  StepRanges steps;
  bool rank_wanted;
  int rank;
  bool begun = false;
  int64_t first_step = -1, last_step = -1;  // first and last step that the run has reached; -1: none yet
  std::map<std::string, std::string> facts;
  const Optimizer* watched = nullptr;
  const Precision* precision = nullptr;
  detail::TensorSink sink;
  std::shared_ptr<detail::DumpRecorder> recorder;  // records the current step
  std::unique_ptr<OpObserver> observer;
};

Dumper::Dumper(DumpOptions options, DumpedModel model, int rank, std::map<std::string, std::string> facts)
    : options_(std::move(options)), model_(std::move(model)) {
  check_limits(options_, "dump");
  check(options_.scope.size() <= 2, ErrorKind::Usage, "dump.scope", options_.scope.size(),
        " names; allowed: one, or the first and the last");
  const auto& words = options_.data_mode;
  const bool only_optimizer = !words.empty() && std::all_of(words.begin(), words.end(), [](const auto& w) { return w == "optimizer"; });
  check(!only_optimizer || options_.task != "overflow_check", ErrorKind::Usage, "dump.data_mode",
        "[optimizer] with task overflow_check dumps nothing: overflows are searched in layers and operators; allowed: task statistics "
        "or tensor, or forward, backward and parameters_grad");
  check(options_.level != "debug" || (options_.task != "overflow_check" && options_.scope.empty() && options_.sample == 1),
        ErrorKind::Usage, "dump.level",
        "debug dumps the values that the program names; allowed with it: task statistics or tensor, no scope and no sample");
  if (options_.task == "statistics" && (options_.sample_elements < 1 || options_.format != "pt"))
    log_warning("dump.", options_.format != "pt" ? "format" : "sample_elements",
                " applies to files of values, which task statistics does not write; allowed: task: tensor");
  if (options_.dir.empty()) options_.dir = "dump";
  std::error_code error;
  check(!std::filesystem::exists(options_.dir, error) || std::filesystem::is_directory(options_.dir, error), ErrorKind::Usage, "dump.dir",
        options_.dir, " is a file; allowed: a folder, which is created if necessary");
  impl_ = std::make_unique<Impl>(options_, rank, std::move(facts));
}

Dumper::~Dumper() {
  try {
    finish_step();
    if (!impl_->rank_wanted || impl_->first_step < 0) return;
    if (const auto missed = impl_->steps.outside(impl_->first_step, impl_->last_step); !missed.empty())
      log_warning("dump.steps: ", join(missed), missed.size() == 1 ? " was" : " were", " not reached; the run had steps ",
                  impl_->first_step, " to ", impl_->last_step);
  } catch (...) {  // an error of the disk was reported before, or another exception ends the run
  }
}

void Dumper::watch(const Optimizer& optimizer, const Precision* precision) {
  impl_->watched = &optimizer;
  impl_->precision = precision;
}

// Returns the facts about a step that a comparison needs; the values are JSON.
std::map<std::string, std::string> Dumper::own_facts() const {
  using detail::json_number, detail::json_string;
  auto environment = npu_train::environment();
  return {{"version", json_string(NPU_TRAIN_VERSION)},
          {"libtorch", json_string(TORCH_VERSION)},
          {"step", std::to_string(step_)},
          {"cpu", json_string(at::get_cpu_capability())},
          {"threads", std::to_string(at::get_num_threads())},
          {"mkldnn", json_string(environment["mkldnn"])},
          {"deterministic", json_string(environment["deterministic"])},
          {"sample", json_number(options_.sample)},
          {"sample_elements", json_number(options_.sample_elements)},
          {"seed", std::to_string(options_.seed)},
          {"loss_scale", json_number(impl_->precision != nullptr ? impl_->precision->scale() : 1.0)}};
}

bool Dumper::begin_step() {
  if (impl_->recorder) return true;
  if (impl_->first_step < 0) impl_->first_step = step_;
  impl_->last_step = std::max(impl_->last_step, step_);
  if (!impl_->rank_wanted || !impl_->steps.contains(step_)) return false;
  if (!impl_->begun) detail::remove_later_steps(options_.dir, step_, impl_->rank);
  impl_->begun = true;
  const auto folder = detail::rank_folder(options_.dir, step_, impl_->rank);
  using detail::json_string;
  const auto& level = options_.level == "module" ? "L0" : options_.level == "op" ? "L1" : options_.level;
  std::string head = "\"task\": " + json_string(options_.task) + ", \"level\": " + json_string(level) + ", \"framework\": \"pytorch\", " +
                     "\"dump_data_dir\": ";
  const auto data = std::filesystem::absolute(folder / "dump_tensor_data");
  head += options_.task == "statistics" ? "null" : json_string(data.string());
  auto facts = own_facts();
  for (const auto& [key, value] : impl_->facts) facts.emplace(key, json_string(value));
  if (const auto part = part_of(options_); !part.empty()) facts.emplace("part", json_string(part));
  std::vector<std::string> members;
  for (const auto& [key, value] : facts) members.push_back(json_string(key) + ": " + value);
  head += ",\n\"npu_train\": {" + join(members);
  auto files = std::make_unique<detail::DumpFolder>(folder, head + "},", options_.level == "debug");
  if (options_.task != "statistics") std::filesystem::create_directories(folder / "dump_tensor_data");
  bool saturates = false;
  if (!model_.parameters.empty()) {
    const auto device = device_of(model_.parameters[0].value.device());
    saturates = backend_of(device).capabilities(device).saturating_overflow;
  }
  impl_->recorder = std::make_shared<detail::DumpRecorder>(options_, model_, impl_->sink, std::move(files), saturates);
  return true;
}

void Dumper::observe() {
  impl_->recorder->begin_forward();
  impl_->observer = std::make_unique<OpObserver>(model_.parameters, *impl_->recorder, /*every=*/options_.level != "debug");
  for (const auto& [name, buffer] : model_.buffers) impl_->observer->watch(name, buffer);
}

void Dumper::stop_observing() {
  if (!impl_->observer) return;
  const auto error = impl_->observer->error();
  impl_->observer.reset();
  impl_->recorder->end_forward();
  if (error != nullptr) std::rethrow_exception(error);
}

void Dumper::finish_step() {
  if (!impl_->recorder) return;
  impl_->observer.reset();
  const auto recorder = std::move(impl_->recorder);
  recorder->end_backward(true);
  recorder->close();
  impl_->sink.wait();
  const auto unmatched = recorder->unmatched();
  for (const auto& text : unmatched) warn_once(text, text);
  if (recorder->empty() && options_.task != "overflow_check")
    warn_once("empty dump",
              str_cat("dump: no ", options_.level == "debug" ? "named value" : "layer or operator", " of step ", step_, " was dumped") +
                  (unmatched.empty() ? "; selection: " + asked_for(options_) : ""));
}

void Dumper::start() {
  stop_observing();  // ends a forward pass for which loss() was not called
  if (begin_step()) observe();
}

void Dumper::save(const std::string& name, const at::Tensor& value) {
  if (options_.level == "debug" && begin_step()) impl_->recorder->named_value(name, value);
}

void Dumper::loss(const at::Tensor& loss) {
  if (!impl_->recorder) return;
  stop_observing();
  impl_->recorder->loss(loss);
}

void Dumper::stop() {
  if (!impl_->recorder) return;
  stop_observing();
  impl_->recorder->end_backward(true);
  impl_->recorder->parameter_gradients(model_.parameters);
}

void Dumper::step() {
  if (impl_->recorder && impl_->watched != nullptr)
    impl_->recorder->optimizer(*impl_->watched, model_.parameters, impl_->precision != nullptr ? impl_->precision->scale() : 1.0);
  finish_step();
  ++step_;
}

void Dumper::phase_begin(Phase phase, int64_t attempt, int micro_batch) {
  if (phase != Phase::Forward) return;
  if (micro_batch == 0) {
    finish_step();
    step_ = attempt;
  }
  if (begin_step()) observe();
}

void Dumper::phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (!impl_->recorder) return;
  if (phase == Phase::Forward) stop_observing();
  if (phase == Phase::Backward) impl_->recorder->end_backward(true);
  if (phase == Phase::Unscale)
    impl_->recorder->parameter_gradients(impl_->watched != nullptr ? impl_->watched->parameters() : model_.parameters);
  if (phase == Phase::Optimizer) step();
}

void Dumper::phase_error(Phase phase, int64_t /*attempt*/, int /*micro_batch*/, std::exception_ptr /*error*/) {
  if (phase == Phase::Forward || phase == Phase::Backward) finish_step();
}

void Dumper::on_loss(const at::Tensor& value, int64_t /*attempt*/, int /*micro_batch*/) { loss(value); }

}  // namespace npu_train
