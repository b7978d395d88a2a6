/// How tools reach a run: observers that programs add to Parts, with sections of the configuration of their own.
///
///   struct PulseOptions { int64_t every = 10; static const ConfigTable<PulseOptions>& config_table(); };
///   parts.observers.add_section<PulseOptions>("pulse", "what the section does", [](const PulseOptions& options) {
///     return std::make_unique<Pulse>(options);   // a RunObserver
///   });
///   // pulse: {every: 5} in a file, config.sections["pulse"] = {{"every", 5}} in code
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {

struct Device;
struct FailedWindow;
struct Model;
struct Parts;
struct RunConfig;
class Optimizer;
class Precision;
class Strategy;
class Task;
class TrainLoop;

/// What there is of a run. While it is being built, nullptr stands for what is not made yet.
struct RunView {
  const RunConfig& config;
  const Parts& parts;
  const ConfigNode& resolved;  ///< the configuration with every default filled in
  const Device& device;
  const Model& model;  ///< of the configuration; its module is nullptr for a task that was given in code
  Strategy* strategy = nullptr;
  Task* task = nullptr;
  Precision* precision = nullptr;
  Optimizer* optimizer = nullptr;
  TrainLoop* loop = nullptr;
  const char* building = "";  ///< what is being made ("the data set was opened"), and what needs less memory
  const char* remedy = "";
};

/// Lives as long as the run that it was made for. What it wants to see of steps, it adds to the loop: StepObservers and Callbacks.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// The run is built, and nothing was computed yet.
  virtual void on_setup(const RunView& /*run*/) {}
  /// Before a call that computes steps (fit, train_epoch, train_step). `run_dir` is "" for a run that writes no files.
  virtual void on_start(const RunView& /*run*/, const std::string& /*run_dir*/) {}
  virtual void on_fit_start(const RunView& /*run*/) {}
  /// fit() ends; `failed`: by an error, which goes on to the caller.
  virtual void on_fit_end(const RunView& /*run*/, const std::string& /*run_dir*/, bool /*failed*/) {}
  /// An error ends the call: one that says more takes its place. `failed` is the window that ran out of memory, if there is one.
  virtual std::optional<Error> explain(const RunView& /*run*/, std::optional<FailedWindow>& /*failed*/, const Error& /*error*/) {
    return std::nullopt;
  }
};

/// The sections of a configuration by name, without `enabled`. A section that is there is on.
using ConfigSections = std::map<std::string, ConfigNode>;

/// What makes the observers of a run. A value: copied with Parts.
class ObserverRegistry {
 public:
  using Made = std::unique_ptr<RunObserver>;

  /// An observer with a section: made for each run whose configuration has the section `name`, unless it says `enabled: false`.
  /// `validate` throws Error(Usage) for options that contradict each other. A name that is there already is replaced.
  template <Configurable Options, class Fn>
  void add_section(const std::string& name, const std::string& doc, Fn factory, std::function<void(const Options&)> validate = {});

  /// An observer without options, made for each run.
  void add(const std::string& name, const std::string& doc, std::function<Made()> factory);

  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  bool has_section(const std::string& name) const;
  /// The sections as fields of a configuration.
  std::vector<FieldInfo> describe() const;

  /// Moves the sections of the configuration `root` that belong to an observer to `sections`, without `enabled`. What is switched off
  /// is dropped, also where it belongs to npu_train::tools and the program does not have it.
  void take_sections(ConfigNode& root, ConfigSections& sections, ConfigProblems& problems) const;
  /// The options with defaults filled in; mistakes, and names that are no section here, go to `problems`.
  ConfigSections resolve(const ConfigSections& sections, ConfigProblems& problems) const;
  /// The observers of a run, in the order of their names.
  std::vector<Made> make(const ConfigSections& sections) const;

 private:
  static void add_problem(ConfigProblems& problems, const ConfigNode& section, const Error& error);

  struct Entry {
    std::string doc;
    std::function<Made(const ConfigNode& options)> make;
    std::function<ConfigNode(const ConfigNode&, const std::string& path, ConfigProblems&)> resolve;  // none: without a section
    std::function<std::vector<FieldInfo>()> describe;
  };
  std::map<std::string, Entry> entries_;
};

template <Configurable Options, class Fn>
void ObserverRegistry::add_section(const std::string& name, const std::string& doc, Fn factory,
                                   std::function<void(const Options&)> validate) {
  Entry entry;
  entry.doc = doc;
  entry.make = [name, factory](const ConfigNode& node) -> Made { return factory(bind<Options>(node, name)); };
  entry.resolve = [validate](const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
    Options options;
    const auto before = problems.all().size();
    bind_into(options, node, path, problems);
    if (validate && problems.all().size() == before) {
      try {
        validate(options);
      } catch (const Error& e) {
        add_problem(problems, node, e);
      }
    }
    return to_node(options);
  };
  entry.describe = [] { return Options::config_table().describe(); };
  entries_[name] = std::move(entry);
}

}  // namespace npu_train
