// Trains the model of a configuration file: train_app CONFIG [key=value ...]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "cli.hpp"
#include "completion.hpp"
#include "config_texts.hpp"
#include "launch_options.hpp"
#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/host_arena.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/commands/main.hpp"
#include "npu_train/tools/runs/verify_resume.hpp"
#include "npu_train/train/callbacks/progress.hpp"
#include "tools/commands/console/number_checks.hpp"

namespace npu_train {
namespace {

struct Arguments {
  std::vector<std::string> words;  // the configuration and the overrides
  std::string resume, list, completion;
  std::optional<int64_t> overfit_batches;
  int64_t verify_steps = 3;
  bool fast_dev_run = false, detect_anomaly = false, verify_resume = false, version = false;
  bool print_config = false, explain_config = false, print_precision = false;
  std::vector<std::string> leave_out;
  cli::LaunchArguments launch;
};

Trainer* g_trainer = nullptr;

void write(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Returns the configuration of the command line, and the overrides, including those that options imply.
cli::ConfigWords config_words(const Arguments& args) {
  auto out = cli::split_words(args.words);
  check(!out.file.empty(), ErrorKind::Usage, "train_app", "no configuration is given; hint: train_app configs/quickstart.yaml");
  if (args.overfit_batches) out.overrides.push_back("trainer.overfit_batches=" + std::to_string(*args.overfit_batches));
  if (args.fast_dev_run) out.overrides.push_back("trainer.fast_dev_run=true");
  if (args.detect_anomaly) out.overrides.push_back("trainer.detect_anomaly=true");
  return out;
}

RunConfig read_config(const Arguments& args, const Parts& parts) {
  const auto [file, overrides] = config_words(args);
  return load_config(file, overrides, parts);
}

void report_end(const RunResult& result) {
  auto text = std::string("done: ") + stop_reason_name(result.reason) + "; " + std::to_string(result.global_step) + " steps" +
              (result.skipped_steps > 0 ? ", " + std::to_string(result.skipped_steps) + " skipped" : "") + "\n";
  for (const auto& [name, value] : result.final_val) text += printed("  val/%s %.4f\n", name.c_str(), value);
  const auto shown = [](const std::string& path) { return npu_train::detail::visible_text(path); };
  if (!result.run_dir.empty())
    text += "results: " + shown(result.run_dir) + " (config.yaml, train.log, history.json, and the files of output.logger)\n";
  if (!result.best_checkpoint.empty()) text += "best checkpoint: " + shown(result.best_checkpoint) + "\n";
  if (!result.last_checkpoint.empty()) text += "last checkpoint: " + shown(result.last_checkpoint) + "\n";
  write(wrapped_lines(text, cli::terminal_columns()));
}

/// Returns how many devices a run of this configuration could use at the same time: 1 if it names one (cuda:0), or if there is only a CPU.
int usable_devices(const std::string& device) {
  for (const char* kind : {"npu", "cuda"})
    if (const int count = device == kind || device == "auto" ? find_backend(kind)->visible_count() : 0; count > 0) return count;
  return 1;
}

/// Applies trainer.devices, unless another launcher has started this process.
void take_devices(Arguments& args, const RunConfig& config) {
  if (args.verify_resume || !launch_of_environment().launcher.empty()) return;
  const int wanted = parse_devices(config.trainer.devices);
  const bool one = args.fast_dev_run || config.trainer.strategy == "single";
  args.launch.nproc = wanted > 0 ? wanted : one ? 1 : usable_devices(config.device);
  if (args.launch.nproc > 1)
    log_info("trainer.devices=", config.trainer.devices, ": starts ", args.launch.nproc, " processes",
             wanted > 0 ? "" : ", one for each device; trainer.devices=1 uses one");
}

/// Whether a training is requested, and not only output such as the version.
bool trains(const Arguments& args) {
  return args.list.empty() && !args.version && !args.print_config && !args.explain_config && !args.print_precision;
}

int train(const Arguments& args, const Parts& parts) {
  if (!args.list.empty()) {
    write(wrapped_lines(cli::listed_parts(args.list, parts), cli::terminal_columns()));
    return 0;
  }
  if (args.explain_config) {
    const auto [file, overrides] = config_words(args);
    write(cli::explained_config(file, overrides, parts));
    return 0;
  }
  const auto config = read_config(args, parts);
  if (args.print_config) {
    write(to_yaml(resolved(config, parts)));
    return 0;
  }
  if (args.print_precision) {
    write(to_yaml(precision_policy(config, parts).node()));
    return 0;
  }
  if (args.verify_resume) {
    const auto report = verify_resume(config, parts, {.steps = args.verify_steps, .leave_out = args.leave_out});
    write(npu_train::detail::visible_lines(report.str()) + "\n");
    return report.passed ? 0 : static_cast<int>(ErrorKind::CheckFailed);
  }
  Trainer trainer(config, parts);
  g_trainer = &trainer;
  cli::on_stop_signal([] { g_trainer->request_stop(); });
  struct Uninstall {
    ~Uninstall() { cli::on_stop_signal(nullptr); }
  } uninstall;  // destroyed before the trainer
  trainer.add_callback(
      std::make_shared<Progress>(write, ::isatty(STDOUT_FILENO) != 0, config.trainer.log_every_n_steps, cli::terminal_columns));
  cli::end_with_peer([&] {
    if (!args.resume.empty()) trainer.resume(args.resume);
    report_end(trainer.fit());
  });
  return cli::signal_received() == 0 ? 0 : 128 + cli::signal_received();
}

}  // namespace

int train_main(int argc, char** argv, const Parts& parts) {
  cli::open_standard_descriptors();
  cli::leave_stdout_to_main_rank();
  cli::raise_descriptor_limit();
  Arguments args;
  CLI::App app("Trains the model that a configuration file describes.");
  app.add_option("config", args.words, "CONFIG.yaml [key=value ...], as in trainer.max_epochs=3 precision=16-mixed");
  app.add_option("--resume", args.resume,
                 "continue from a checkpoint: auto (the newest complete one, or a new run), last, best, or a path");
  app.add_flag_callback(
      "--offline", [] { ::setenv("NPU_TRAIN_OFFLINE", "1", 1); }, "download nothing: data and weights must be in place");
  app.add_flag("--fast-dev-run", args.fast_dev_run, "run one training and one validation batch; write nothing");
  app.add_option("--overfit-batches", args.overfit_batches, "train and validate on the first N batches only, repeatedly");
  app.add_flag("--detect-anomaly", args.detect_anomaly, "explain the first overflow and non-finite gradients; slower");
  auto* verify = app.add_flag("--verify-resume", args.verify_resume, "prove that this configuration resumes bit for bit");
  app.add_option("--verify-steps", args.verify_steps, "number of steps before and after the checkpoint of --verify-resume")
      ->check(cli::above_zero());
  app.add_option("--leave-out", args.leave_out,
                 "part of the state that --verify-resume does not restore, to show that it detects this; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--print-config", args.print_config, "print the configuration with every default, and stop");
  app.add_flag("--explain-config", args.explain_config,
               "print each value of the configuration with its source (file and line, command line, default), and stop");
  app.add_flag("--print-precision", args.print_precision,
               "print the dtype in which each layer computes and how overflows are detected, and stop");
  app.add_option("--list", args.list, std::string("list the parts that a configuration can name: ") + cli::kListedParts);
  app.add_flag("--version", args.version, "print versions and devices");
  cli::add_completion(app, "train_app", args.completion);
  cli::add_launch_options(app, args.launch);
  app.get_option("--nproc")->excludes(verify);
  try {
    const CLocale numbers;
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::parse_end(app, e, argc, argv, parts);
  }
  ScopedLogSink sink(cli::make_program_sink());
  return cli::guarded([&] {
    if (!args.completion.empty()) {
      write(cli::completion_script(app, "train_app", args.completion, cli::override_words(parts)));
      return 0;
    }
    if (trains(args)) {
      const auto config = read_config(args, parts);  // reads it here, so that an error is reported once and not by every rank
      if (app.count("--nproc") == 0) take_devices(args, config);
      if (args.launch.nproc > 1 || args.launch.max_restarts > 0) {  // here, before a device is initialised
        const auto command = cli::rank_command(argc, argv);
        return cli::launch(args.launch, command, cli::resumed_command(command));
      }
    }
    // exists until the process ends: after an error, threads of a device may still compute in its memory
    static const auto arena = host_arena_from_environment();
    register_devices(parts);
    if (args.version) {
      write(cli::version_text() + "\n");
      return 0;
    }
    return train(args, parts);
  });
}

}  // namespace npu_train
