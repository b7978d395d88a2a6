#include "npu_train/engine/trainer.hpp"

#include <ATen/Version.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/data/relabelled.hpp"
#include "npu_train/engine/logger.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/engine/run_files.hpp"
#include "npu_train/train/callbacks/progress.hpp"
#include "npu_train/train/loop.hpp"
#include "npu_train/train/monitors.hpp"
#include "process_state.hpp"
#include "run_build.hpp"
#include "run_folder.hpp"

namespace npu_train {

namespace fs = std::filesystem;

struct Trainer::Impl {
  RunConfig config;
  Parts parts;
  RunFolder folder{config};  // outlives an unfinished save of `run`
  Run run;
  std::vector<std::string> classes;  // classes that the data must have; empty: the data's own
  Split split = Split::Val;          // the part of the data on which the run validates
  LogSink log_file;                  // train.log of the folder
  std::shared_ptr<RunFiles> files;   // logs in the folder
  std::vector<std::shared_ptr<Callback>> callbacks;
  std::vector<StepObserver*> observers;
  State rng;            // state of the run's generators between calls
  bool inside = false;  // true while a call runs; a callback may make a nested call
  std::atomic<std::thread::id> user{};
  const int64_t log_number = new_log_run();
  std::shared_ptr<std::atomic<bool>> stop = std::make_shared<std::atomic<bool>>(false);

  /// Marks the trainer as used by one thread. Error(Usage) while another thread is inside a call.
  class Use {
   public:
    Use(Impl& self, const char* where) : self_(self), outer_(self.user.load() == std::this_thread::get_id()), log_(self.log_number) {
      std::thread::id nobody;
      check(outer_ || self.user.compare_exchange_strong(nobody, std::this_thread::get_id()), ErrorKind::Usage, where,
            "this trainer is in use by another thread; allowed: one thread at a time, and request_stop() from any; hint: give each thread "
            "a trainer of its own");
    }
    ~Use() {
      if (!outer_) self_.user.store({});
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Impl& self_;
    bool outer_;  // this call came from inside another one, for example from a callback
    ScopedLogRun log_;
  };

  /// Wraps every public call: translates errors, applies the process-wide settings, builds all objects.
  template <class Fn>
  auto call(const char* where, Fn&& fn) -> decltype(fn()) {
    const Use use(*this, where);
    return translated(where, [&] {
      if (inside) return fn();
      const ProcessState scope(config, rng, inside);
      // Code without a device argument uses the thread's current device: allocators, streams, graphs.
      const c10::DeviceGuard current((run.loop ? run.device : run_device(config)).c10());
      if (!run.loop) build();
      try {
        return translated(where, fn);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::Peer) run.strategy->ranks().abandon();
        const auto explained = explain(e);
        if (log_file)
          log_file(LogLevel::Error, (explained ? *explained : e).what());  // so that the run's log ends with the error that ended it
        if (explained) throw *explained;
        throw;
      }
    });
  }

  RunView view() const { return run.view(config, parts); }

  /// Returns a more detailed error from an observer of the run, if any has one.
  std::optional<Error> explain(const Error& error) {
    auto failed = run.loop ? run.loop->take_failed_window() : std::nullopt;
    for (const auto& observer : run.observers)
      if (auto explained = observer->explain(view(), failed, error)) return explained;
    return std::nullopt;
  }

  void build() {
    const auto task = run.task;
    const auto data = run.data;
    try {
      run.observers = parts.observers.make(config.sections);
      run.classes = classes;
      run.validated = split;
      run.build(config, parts, stop);
      for (size_t i = 0; i < config.callbacks.size(); ++i)
        run.loop->add_callback(parts.callbacks.make(config.callbacks[i], "callbacks." + std::to_string(i)));
    } catch (...) {  // otherwise the incomplete objects would count as given by the program
      const auto explained = explain(translate_current_exception("Trainer::setup"));
      begin(task, data);
      if (explained) throw *explained;
      throw;
    }
    for (const auto& c : callbacks) run.loop->add_callback(c);
    for (const auto& o : run.observers) o->on_setup(view());
    for (auto* o : observers) run.loop->observers().add(o);
  }

  /// Call it before computing steps.
  void start() {
    for (const auto& o : run.observers) o->on_start(view(), folder.path());
  }

  /// Runs the loop's fit between the observers' calls. After an error, failures of observers are only logged, and the original error is
  /// rethrown.
  RunResult watched_fit() {
    for (const auto& o : run.observers) o->on_fit_start(view());
    RunResult result;
    try {
      result = run.loop->fit();
    } catch (...) {
      run.strategy->ranks().abandon();
      if (files) files->on_fit_failed();
      for (const auto& o : run.observers) try {
          o->on_fit_end(view(), folder.path(), /*failed=*/true);
        } catch (const std::exception& e) {
          log_warning("after the error that ends this run: ", e.what());
        }
      throw;
    }
    for (const auto& o : run.observers) o->on_fit_end(view(), folder.path(), /*failed=*/false);
    result.run_dir = folder.path();
    return result;
  }

  /// Begins a new run with the given objects; missing ones are made from the configuration.
  void begin(std::shared_ptr<Task> task, DatasetPair data) {
    files.reset();
    run = Run{};
    run.task = std::move(task);
    run.data = std::move(data);
    rng = {};
    folder.reset();
    log_file = {};
  }

  bool writes() const { return run.strategy->ranks().is_main() && folder.is_written(); }

  /// Warns if the value that was logged as `name` is in none of the files that this run writes.
  void check_has_folder(const std::string& name) const {
    if (writes() && folder.path().empty())
      log_warning("[log] '", name,
                  "' was logged before the run has its folder, and is in none of its files; hint: log it after fit() or resume() "
                  "has begun");
  }

  /// Releases the folder to other objects at the end of a fit.
  void let_go() {
    if (run.store) run.store->wait();
    folder.release();
  }

  /// Determines the folder of the run's files, once: that of the resumed checkpoint, or a new one.
  void open_run_dir(const std::string& existing = "") {
    if (!writes()) return;
    if (!folder.path().empty()) return folder.hold(folder.path());
    std::vector<std::shared_ptr<Logger>> loggers;
    for (size_t i = 0; i < config.output.logger.size(); ++i)
      loggers.push_back(parts.loggers.make(config.output.logger[i], "output.logger." + std::to_string(i)));
    const auto dir = folder.open(existing, run.resolved);
    files = std::make_shared<RunFiles>(LoggedRun{.dir = dir, .name = folder.run_name(), .config = run.resolved},
                                       config.trainer.log_every_n_steps, std::move(loggers));
    run.loop->add_callback(files);
    if (config.checkpoint.enabled) {
      run.open_store((fs::path(dir) / "checkpoints").string(), config.checkpoint);
      run.store->set_before_commit([this] { folder.check_held(); });
    }
    try {
      log_file = make_file_sink((fs::path(dir) / "train.log").string());
    } catch (const Error& e) {
      log_warning(e.what(), "; the run has no train.log");
      log_file = [](LogLevel, std::string_view) {};
    }
    const auto lines = [file = log_file](const std::string& text) {
      file(LogLevel::Info, std::string_view(text).substr(0, text.find('\n')));
    };
    run.loop->add_callback(std::make_shared<Progress>(lines, /*bar=*/false, config.trainer.log_every_n_steps));
    folder.settle(dir);
  }

  RunResult fit() {
    // Only a training needs the validation data of the configured monitor; tools that only take steps do not.
    detail::check_early_stopping(config.early_stopping, config.trainer, /*has_data=*/true);  // checked before any data are opened
    return call("Trainer::fit", [&] {
      detail::check_early_stopping(config.early_stopping, config.trainer, run.val.has_value());
      open_run_dir();
      struct End {
        Impl& self;
        ~End() { self.let_go(); }
      } end{*this};
      const ScopedLogTee tee(log_file, log_number);
      if (const auto keys = disabled_keys(config); !keys.empty())
        log_warning("without effect: ", join(keys), ", since their section has enabled: false; hint: remove it, or these keys");
      run.announce(folder.path());
      start();
      return watched_fit();
    });
  }

  /// Rejects data whose labels have other meanings than when the checkpoint was written.
  void check_classes(const CheckpointMeta& meta, const std::string& checkpoint) const {
    const auto here = run.data.info().class_names, there = class_names_of(meta);
    if (here.empty() || there.empty() || here == there) return;
    const auto difference = difference_of_classes(here, there);
    throw Error(ErrorKind::Checkpoint, "Trainer::resume",
                str_cat("the data have other classes than the training of ", checkpoint, ": ",
                        difference.empty() ? "the same ones in another order" : difference),
                "restore the data, or begin a new run with model.weights=" + checkpoint + ", which matches the classes by name");
  }

  /// Returns the checkpoint that the main rank finds. The others do not search: they may see another folder, or the same one later.
  std::string agreed_checkpoint(const std::string& which, std::string& dir) {
    const bool is_main = run.strategy->ranks().is_main();
    return run.strategy->ranks().from_main(is_main ? folder.find_resumed(which, dir) : std::string());
  }
  std::string resume(const std::string& which);
};

std::string Trainer::Impl::resume(const std::string& which) {
  struct Undo {
    Impl& self;
    ~Undo() {
      if (self.folder.path().empty()) self.folder.release();
    }
  } undo{*this};  // after an error, other objects may use the folder
  std::string dir;
  const auto checkpoint = agreed_checkpoint(which, dir);
  if (checkpoint.empty()) return "";
  const auto meta = read_checkpoint_meta(checkpoint);
  if (meta.threads != at::get_num_threads() || meta.cpu != at::get_cpu_capability())
    log_warning("the checkpoint was made with ", meta.threads, " threads on ", meta.cpu, "; this run has ", at::get_num_threads(), " on ",
                at::get_cpu_capability(), "; the last bits of sums will differ");
  check_classes(meta, checkpoint);
  run.loop->load_checkpoint(checkpoint);
  open_run_dir(dir);
  const ScopedLogTee tee(log_file, log_number);
  log_info("resumed from ", checkpoint, " (epoch ", run.loop->epoch(), ", step ", run.loop->global_step(), ")");
  return checkpoint;
}

Trainer::Trainer(RunConfig config, Parts parts) : impl_(std::make_unique<Impl>()) {
  translated("Trainer", [&] {
    check_config(config, parts);
    launch_of_environment();
  });
  impl_->config = std::move(config);
  impl_->parts = std::move(parts);
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

Trainer::Impl& Trainer::impl() const {
  check(impl_ != nullptr, ErrorKind::Usage, "Trainer", "this trainer was moved from; allowed: to destroy it and to assign to it");
  return *impl_;
}

void Trainer::setup() {
  impl().call("Trainer::setup", [] {});
}

void Trainer::setup(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val) {
  const Impl::Use use(impl(), "Trainer::setup");
  DatasetPair data;
  data.train = std::move(train);
  data.val = std::move(val);
  impl().begin(std::move(task), std::move(data));
  setup();
}

RunResult Trainer::fit() { return impl().fit(); }

RunResult Trainer::fit(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val) {
  const Impl::Use use(impl(), "Trainer::fit");
  if (impl().run.task != task || impl().run.data.train != train || impl().run.data.val != val)
    setup(std::move(task), std::move(train), std::move(val));
  return impl().fit();
}

RunResult Trainer::fit(std::shared_ptr<Task> task, std::shared_ptr<IterableDataset> train, std::shared_ptr<const Dataset> val) {
  const Impl::Use use(impl(), "Trainer::fit");
  if (impl().run.task != task || impl().run.data.train_stream != train || impl().run.data.val != val) {
    DatasetPair data;
    data.train_stream = std::move(train);
    data.val = std::move(val);
    impl().begin(std::move(task), std::move(data));
  }
  return impl().fit();
}

void Trainer::use_classes(std::vector<std::string> classes) {
  check(!impl_->run.loop, ErrorKind::Usage, "Trainer::use_classes", "the run is built; hint: call it before setup()");
  impl_->classes = std::move(classes);
}

void Trainer::use_split(Split split) {
  check(!impl().run.loop, ErrorKind::Usage, "Trainer::use_split", "the run is built; hint: call it before setup()");
  impl_->split = split;
}

Scalars Trainer::validate() {
  return impl().call("Trainer::validate", [&] { return impl().run.loop->validate(); });
}

at::Tensor Trainer::predict(const at::Tensor& input) {
  return impl().call("Trainer::predict", [&] { return impl().run.loop->predict(input); });
}

Outputs Trainer::predict(const Batch& batch) {
  return impl().call("Trainer::predict", [&] { return impl().run.loop->predict(batch); });
}

StepReport Trainer::train_step(const std::vector<Batch>& window) {
  return impl().call("Trainer::train_step", [&] {
    impl().start();
    return impl().run.loop->train_step(window);
  });
}

void Trainer::set_epoch(int64_t epoch) {
  impl().call("Trainer::set_epoch", [&] { impl().run.loop->set_epoch(epoch); });
}

std::optional<EpochReport> Trainer::train_epoch() {
  return impl().call("Trainer::train_epoch", [&] {
    impl().start();
    return impl().run.loop->train_epoch();
  });
}

std::string Trainer::resume(const std::string& which) {
  return impl().call("Trainer::resume", [&] { return impl().resume(which); });
}

std::string Trainer::save_checkpoint() {
  return impl().call("Trainer::save_checkpoint", [&] {
    impl().open_run_dir();
    return impl().run.loop->save_checkpoint();
  });
}

RunState Trainer::state() {
  return impl().call("Trainer::state", [&] { return impl().run.loop->state(); });
}

void Trainer::load_state(const RunState& state, const std::vector<std::string>& leave_out) {
  impl().call("Trainer::load_state", [&] { impl().run.loop->load_state(state, leave_out); });
}

void Trainer::request_stop() noexcept {
  if (impl_) impl_->stop->store(true, std::memory_order_relaxed);
}

void Trainer::add_callback(std::shared_ptr<Callback> callback) {
  const Impl::Use use(impl(), "Trainer::add_callback");
  if (impl().run.loop) impl().run.loop->add_callback(callback);
  impl().callbacks.push_back(std::move(callback));
}

void Trainer::add_observer(StepObserver* observer) {
  const Impl::Use use(impl(), "Trainer::add_observer");
  if (impl().run.loop) impl().run.loop->observers().add(observer);
  impl().observers.push_back(observer);
}

const RunConfig& Trainer::config() const { return impl().config; }
const std::string& Trainer::run_dir() const { return impl().folder.path(); }

TrainLoop& Trainer::loop() {
  setup();
  return *impl().run.loop;
}

void Trainer::log(const std::string& name, double value, std::optional<int64_t> step) {
  loop().log(name, value, step);
  impl().check_has_folder(name);
}

void Trainer::log_text(const std::string& name, const std::string& text, std::optional<int64_t> step) {
  loop().log_text(name, text, step);
  impl().check_has_folder(name);
}

void Trainer::log_image(const std::string& name, const at::Tensor& image, std::optional<int64_t> step) {
  loop().log_image(name, image, step);
  impl().check_has_folder(name);
}

void Trainer::log_histogram(const std::string& name, const at::Tensor& values, std::optional<int64_t> step) {
  loop().log_histogram(name, values, step);
  impl().check_has_folder(name);
}

Task& Trainer::task() {
  setup();
  return *impl().run.task;
}

const DatasetPair& Trainer::data() {
  setup();
  return impl().run.data;
}

const Model& Trainer::model() {
  setup();
  check(impl().run.model.module != nullptr, ErrorKind::Usage, "Trainer::model", "the task was given in code; the trainer has no model");
  return impl().run.model;
}

}  // namespace npu_train
