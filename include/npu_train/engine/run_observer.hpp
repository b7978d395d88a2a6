/// The interface between tools and a run: observers that programs add to Parts, each with its own section of the configuration.
///
///   struct PulseOptions { int64_t every = 10; static const ConfigTable<PulseOptions>& config_table(); };
///   parts.observers.add_section<PulseOptions>("pulse", "the meaning of the section", [](const PulseOptions& options) {
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

/// The objects of a run. During construction, objects that do not exist yet are nullptr.
struct RunView {
  const RunConfig& config;
  const Parts& parts;
  const ConfigNode& resolved;  ///< the configuration with every default filled in
  const Device& device;
  const Model& model;  ///< model of the configuration; its module is nullptr if the task was given in code
  Strategy* strategy = nullptr;
  Task* task = nullptr;
  Precision* precision = nullptr;
  Optimizer* optimizer = nullptr;
  TrainLoop* loop = nullptr;
  const char* building = "";  ///< `building`: for messages ("the data set was opened"); `remedy`: an alternative that needs less memory
  const char* remedy = "";
};

/// An observer of one run, which lives as long as the run. To observe steps, it adds StepObservers and Callbacks to the loop.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Called when the run is built, before its first step.
  virtual void on_setup(const RunView& /*run*/) {}
  /// Called before a call that computes steps (fit, train_epoch, train_step). `run_dir` is "" if the run writes no files.
  virtual void on_start(const RunView& /*run*/, const std::string& /*run_dir*/) {}
  virtual void on_fit_start(const RunView& /*run*/) {}
  /// Called when fit() ends. `failed`: it ends with an error, which is then rethrown to the caller.
  virtual void on_fit_end(const RunView& /*run*/, const std::string& /*run_dir*/, bool /*failed*/) {}
  /// Called when an error ends a call; may return a more detailed error to throw instead. `failed` is the window that ran out of memory, if
  /// any.
  virtual std::optional<Error> explain(const RunView& /*run*/, std::optional<FailedWindow>& /*failed*/, const Error& /*error*/) {
    return std::nullopt;
  }
};

/// Sections of a configuration by name, without `enabled`. A present section is enabled.
using ConfigSections = std::map<std::string, ConfigNode>;

/// Factories of a run's observers. Copied as part of Parts.
class ObserverRegistry {
 public:
  using Made = std::unique_ptr<RunObserver>;

  /// Adds an observer with the section `name`. It is created for each run whose configuration has that section without `enabled: false`.
  /// `validate` throws Error(Usage) for contradictory options. Replaces an observer of the same name.
  template <Configurable Options, class Fn>
  void add_section(const std::string& name, const std::string& doc, Fn factory, std::function<void(const Options&)> validate = {});

  /// Adds an observer without options, created for each run.
  void add(const std::string& name, const std::string& doc, std::function<Made()> factory);

  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  bool has_section(const std::string& name) const;
  /// Returns the sections as fields of a configuration.
  std::vector<FieldInfo> describe() const;

  /// Moves the sections of observers from the configuration `root` to `sections`, without `enabled`. Removes disabled sections, also those
  /// of npu_train::tools in a program without that library.
  void take_sections(ConfigNode& root, ConfigSections& sections, ConfigProblems& problems) const;
  /// Returns the options with defaults filled in; errors and unknown sections go to `problems`.
  ConfigSections resolve(const ConfigSections& sections, ConfigProblems& problems) const;
  /// Returns the observers of a run, in name order.
  std::vector<Made> make(const ConfigSections& sections) const;

 private:
  static void add_problem(ConfigProblems& problems, const ConfigNode& section, const Error& error);

  struct Entry {
    std::string doc;
    std::function<Made(const ConfigNode& options)> make;
    std::function<ConfigNode(const ConfigNode&, const std::string& path, ConfigProblems&)> resolve;  // empty: the observer has no section
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
