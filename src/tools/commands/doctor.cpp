#include <algorithm>
#include <chrono>
#include <cmath>

#include "commands.hpp"
#include "doctor_dist.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/doctor/environment_lint.hpp"
#include "npu_train/tools/probe/hello.hpp"
#include "npu_train/tools/probe/process_facts.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::cli {
namespace {

/// Runs one step of a small transformer on generated images.
Finding training_step(const Device& device, const std::string& precision, const SimNpuOptions& sim_npu) {
  RunConfig config{.device = device.str(), .precision = precision, .sim_npu = sim_npu, .output = {.dir = ""}};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 32}, {"val_size", 16}, {"batch_size", 16}, {"num_workers", "0"}}};
  config.optimizer = {.name = "adamw", .options = {{"lr", 1e-3}}};
  config.trainer.fast_dev_run = true;
  // Logs nothing, because the finding contains the messages.
  const ScopedLogSink quiet({});
  const auto start = std::chrono::steady_clock::now();
  const auto result = Trainer(config).fit();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double loss = result.history.empty() ? NAN : scalar_or(result.history.back().train, "loss", NAN);
  Finding f{"hello", device.str() + " step " + precision, Verdict::Ok, "one training step, loss " + short_number(loss, 4),
            "a transformer of one block on 16 generated images, one update, one validation; " + short_number(seconds * 1e3, 3) + " ms"};
  if (result.skipped_steps > 0) f.finding += "; the update was skipped because of an overflow, which is normal in the first steps of fp16";
  if (!std::isfinite(loss)) {
    f.verdict = Verdict::Fail;
    f.fix = "npu_tool validate CONFIG --device " + device.str() + " names the first layer that differs from the CPU";
  }
  return f;
}

/// Returns the selected devices. Adds to `out` findings on those that cannot be used.
std::vector<Device> meant_devices(const std::string& device, std::vector<Finding>& out) {
  if (device.empty() || device == "auto") return usable_devices(out);
  try {
    return {resolve_device(device)};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Device) throw;
    out.push_back({"hello", device, Verdict::Fail, "the device cannot be used", e.what(), "fix the failures above"});
    return {};
  }
}

/// Returns false if the first operator on the CPU would end this process.
bool kernels_fit(const DoctorReport& report) {
  return std::none_of(report.findings.begin(), report.findings.end(),
                      [](const Finding& f) { return f.area == "cpu" && f.name == "kernels" && f.verdict == Verdict::Fail; });
}

std::vector<Finding> hello(const std::string& device, const SimNpuOptions& sim_npu) {
  std::vector<Finding> out;
  const auto devices = meant_devices(device, out);
  HelloOptions options{.precisions = {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"}};
  options.step = [&](const Device& on, const std::string& precision) { return training_step(on, precision, sim_npu); };
  for (auto& f : check_hello(devices, options)) out.push_back(std::move(f));
  return out;
}

/// Checks a named device even if no computation is requested on it.
std::vector<Finding> named_device(const std::string& device) {
  std::vector<Finding> out;
  if (device.empty() || device == "auto") return out;
  for (const auto& d : meant_devices(device, out))
    out.push_back({"hello", d.str(), Verdict::Ok, "the device can be used", "nothing was computed"});
  return out;
}

int examine(const DoctorArguments& args, const Parts& parts) {
  auto device = args.device, output = args.output;
  SimNpuOptions sim_npu;
  if (const auto [file, overrides] = split_words(args.words); !file.empty()) {
    const auto config = load_config(file, overrides, parts);
    if (device.empty()) device = config.device;
    if (output.empty()) output = config.output.dir;
    sim_npu = config.sim_npu;
  }
  if (!device.empty() && device != "auto") Device::parse(device);
  if (device.starts_with("sim_npu")) start_sim_npu(sim_npu);
  check_writable({args.write_env, args.html});
  const auto host = HostView::live();
  const auto process = this_process();
  if (!args.write_env.empty()) write_file_atomic(args.write_env, required_environment(host, process));
  auto report = check_machine(host, process, {.output = output.empty() ? "." : output});
  if (!kernels_fit(report))
    report.add({{"hello", "cpu", Verdict::Fail, "nothing was computed: the first operator would end this program", "the check cpu kernels",
                 "fix the failures above"}});
  else
    report.add(args.no_hello ? named_device(device) : hello(device, sim_npu));
  return print_findings(report, args);
}

int doctor(const DoctorArguments& args, const Parts& parts) {
  if (const auto code = args.versions || args.setup ? print_software(args, this_process()) : explain_if_asked(args)) return *code;
  return examine(args, parts);
}

}  // namespace

void add_doctor(CLI::App& app, Command& run, std::function<int()>& launch) {
  add_doctor_options(app, [&run, &launch](const DoctorArguments& args) {
    if (args.dist.asked)
      launch = [args] { return doctor_dist(args.dist); };
    else
      run = [args](const Parts& parts) { return doctor(args, parts); };
  });
}

}  // namespace npu_train::cli
