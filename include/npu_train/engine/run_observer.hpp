/// The interface of tools to a run: observers that programs add to Parts, with their own sections of the configuration.
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

/// The objects of a run. While it is being built, objects that do not exist yet are nullptr.
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
  const char* building = "";  ///< the object being made ("the data set was opened"), and an alternative that needs less memory
  const char* remedy = "";
};

/// Lives as long as its run. To observe steps, it adds StepObservers and Callbacks to the loop.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// The run is built; no step has been computed yet.
  virtual void on_setup(const RunView& /*run*/) {}
  /// Before a call that computes steps (fit, train_epoch, train_step). `run_dir` is "" for a run that writes no files.
  virtual void on_start(const RunView& /*run*/, const std::string& /*run_dir*/) {}
  virtual void on_fit_start(const RunView& /*run*/) {}
  /// fit() ends; `failed`: because of an error, which is then rethrown to the caller.
  virtual void on_fit_end(const RunView& /*run*/, const std::string& /*run_dir*/, bool /*failed*/) {}
  /// An error ends the call; a more detailed one may replace it. `failed` is the window that ran out of memory, if there is one.
  virtual std::optional<Error> explain(const RunView& /*run*/, std::optional<FailedWindow>& /*failed*/, const Error& /*error*/) {
    return std::nullopt;
  }
};

/// The sections of a configuration by name, without `enabled`. A section that is present is enabled.
using ConfigSections = std::map<std::string, ConfigNode>;

/// The factories of the observers of a run. A value: copied with Parts.
class ObserverRegistry {
 public:
  using Made = std::unique_ptr<RunObserver>;

  /// An observer with a section: made for each run whose configuration has the section `name`, unless it contains `enabled: false`.
  /// `validate` throws Error(Usage) for options that contradict each other. An existing name is replaced.
  template <Configurable Options, class Fn>
  void add_section(const std::string& name, const std::string& doc, Fn factory, std::function<void(const Options&)> validate = {});

  /// An observer without options, made for each run.
  void add(const std::string& name, const std::string& doc, std::function<Made()> factory);

  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  bool has_section(const std::string& name) const;
  /// The sections as fields of a configuration.
  std::vector<FieldInfo> describe() const;

  /// Moves the sections of the configuration `root` that belong to an observer to `sections`, without `enabled`. A disabled section is
  /// removed, even if it belongs to npu_train::tools and the program does not have that library.
  void take_sections(ConfigNode& root, ConfigSections& sections, ConfigProblems& problems) const;
  /// The options with defaults filled in; errors, and names without a section, go to `problems`.
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
