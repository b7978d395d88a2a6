#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "../cli.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/doctor/checks.hpp"
#include "npu_train/doctor/environment_lint.hpp"
#include "npu_train/doctor/explain.hpp"
#include "npu_train/doctor/hello.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/report/number.hpp"

namespace npu_train::cli {
namespace {

constexpr int kWaitForLog = 1000;  // milliseconds that an idle pipe on stdin is waited for

struct DoctorArguments {
  std::vector<std::string> words;
  std::string device, output, explain, html, write_env;
  bool asks = false, json = false, no_hello = false;
};

/// Whether a log comes on stdin: a file that is not empty, or a pipe in which something arrives.
bool log_on_stdin() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  if (S_ISREG(info.st_mode)) return info.st_size > 0;
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  return S_ISFIFO(info.st_mode) && ::poll(&wait, 1, kWaitForLog) > 0 && (wait.revents & POLLIN) != 0;
}

size_t columns() {
  winsize size{};
  const bool terminal = ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return terminal && size.ws_col >= 60 ? size.ws_col : 110;
}

int explain_stdin(bool json) {
  std::ios::sync_with_stdio(false);
  const auto report = explain_log(std::cin);
  print(json, json ? report.to_json() : Json(), json ? "" : report.str(columns()));
  return 0;
}

int explain_text(const std::string& text, bool json) {
  const auto found = explain(text);
  print(json, json ? explanation_json(found) : Json(), json ? "" : explanation_text(found, columns()));
  return 0;
}

/// One step of a small transformer on generated pictures.
Finding training_step(const Device& device, const std::string& precision, const SimNpuOptions& sim_npu) {
  RunConfig config{.device = device.str(), .precision = precision, .sim_npu = sim_npu, .output = {.dir = ""}};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 32}, {"val_size", 16}, {"batch_size", 16}, {"num_workers", "0"}}};
  config.optimizer = {.name = "adamw", .options = {{"lr", 1e-3}}};
  config.trainer.fast_dev_run = true;
  // without a log of its own: what it says is the finding
  const ScopedLogSink quiet({});
  const auto start = std::chrono::steady_clock::now();
  const auto result = Trainer(config).fit();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double loss = result.history.empty() ? NAN : scalar_or(result.history.back().train, "loss", NAN);
  Finding f{"hello", device.str() + " step " + precision, Verdict::Ok, "one training step, loss " + short_number(loss, 4),
            "a transformer of one block on 16 generated pictures, one update, one validation; " + short_number(seconds * 1e3, 3) + " ms"};
  if (result.skipped_steps > 0) f.finding += "; the update was skipped by an overflow, as first steps in fp16 may be";
  if (!std::isfinite(loss)) {
    f.verdict = Verdict::Fail;
    f.fix = "npu_tool validate CONFIG --device " + device.str() + " names the first layer that differs from the CPU";
  }
  return f;
}

std::vector<Finding> hello(const std::string& device, const SimNpuOptions& sim_npu) {
  std::vector<Finding> out;
  std::vector<Device> devices;
  if (device.empty() || device == "auto") {
    devices = usable_devices(out);
  } else {
    try {
      devices = {resolve_device(device)};
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      out.push_back({"hello", device, Verdict::Fail, "the device cannot be used", e.what(), "mend what fails above"});
    }
  }
  HelloOptions options{.precisions = {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"}};
  options.step = [&](const Device& on, const std::string& precision) { return training_step(on, precision, sim_npu); };
  for (auto& f : check_hello(devices, options)) out.push_back(std::move(f));
  return out;
}

int examine(const DoctorArguments& args) {
  auto device = args.device, output = args.output;
  SimNpuOptions sim_npu;
  if (const auto [file, overrides] = split_words(args.words); !file.empty()) {
    const auto config = load_config(file, overrides, builtin_parts());
    if (device.empty()) device = config.device;
    if (output.empty()) output = config.output.dir;
    sim_npu = config.sim_npu;
  }
  if (!device.empty() && device != "auto") Device::parse(device);
  if (device.starts_with("sim_npu")) start_sim_npu(sim_npu);
  const auto host = HostView::live();
  const auto process = this_process();
  if (!args.write_env.empty()) write_file_atomic(args.write_env, wanted_environment(host, process));
  auto report = check_machine(host, process, {.output = output.empty() ? "." : output});
  if (!args.no_hello) report.add(hello(device, sim_npu));
  if (!args.html.empty()) write_file_atomic(args.html, report.to_html());
  print(args.json, args.json ? report.to_json() : Json(), args.json ? "" : report.str(columns()));
  if (!args.write_env.empty() && !args.json) std::printf("the environment it wants: %s\n", args.write_env.c_str());
  return report.worst() == Verdict::Fail ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

int doctor(const DoctorArguments& args) {
  if (args.asks && !args.explain.empty() && args.explain != "-")  // a symptom without quotes: its other words count too
    return explain_text(args.words.empty() ? args.explain : args.explain + " " + join(args.words, " "), args.json);
  if (args.asks) {
    check(args.explain == "-" || !::isatty(STDIN_FILENO), ErrorKind::Usage, "doctor",
          "--explain wants a code or symptom, or a log on stdin");
    return explain_stdin(args.json);
  }
  return log_on_stdin() ? explain_stdin(args.json) : examine(args);
}

}  // namespace

void add_doctor(CLI::App& app, Command& run) {
  auto args = std::make_shared<DoctorArguments>();
  auto* sub = app.add_subcommand("doctor", "check this machine, or explain an error code, a symptom or a log on stdin");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]: its device and output.dir are checked");
  sub->add_option("--device", args->device, "greet this one only: cpu, cuda[:i], npu[:i], sim_npu[:i]; default: all that are there");
  sub->add_option("--output", args->output, "folder of runs, whose disk is checked; default: .");
  sub->add_flag("--no-hello", args->no_hello, "compute nothing on the devices");
  auto* explain = sub->add_option("--explain", args->explain, "CODE or SYMPTOM (507018, 'out of memory'); - or nothing: the log on stdin");
  explain->expected(0, 1);
  sub->add_option("--write-env", args->write_env, "write the environment that this machine should have, for `source`");
  sub->add_option("--html", args->html, "write a self-contained page");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run, explain] {
    args->asks = explain->count() > 0;
    run = [args] { return doctor(*args); };
  });
}

}  // namespace npu_train::cli
