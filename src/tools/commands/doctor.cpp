#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <streambuf>

#include "commands.hpp"
#include "doctor_dist.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/environment_lint.hpp"
#include "npu_train/tools/doctor/environment_matrix.hpp"
#include "npu_train/tools/doctor/explain.hpp"
#include "npu_train/tools/doctor/hello.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/page_origin.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

constexpr int kWaitForLog = 1000;     // milliseconds to wait for an idle pipe on stdin
constexpr int kWaitForMore = 10'000;  // like kWaitForLog, within a log that was not requested

struct DoctorArguments {
  std::vector<std::string> words;
  std::string device, output, explain, html, write_env;
  bool asks = false, json = false, no_hello = false, versions = false;
};

/// Whether there are no arguments. Only then is stdin read as a log, since scripts pass on unrelated stdins.
bool is_bare(const DoctorArguments& a) {
  return a.words.empty() && a.device.empty() && a.output.empty() && a.html.empty() && a.write_env.empty() && !a.asks && !a.json &&
         !a.no_hello && !a.versions;
}

/// Whether a log arrives on stdin: a file that is not empty, or a pipe with data.
bool log_on_stdin() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  if (S_ISREG(info.st_mode)) return info.st_size > 0;
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  return S_ISFIFO(info.st_mode) && ::poll(&wait, 1, kWaitForLog) > 0 && (wait.revents & POLLIN) != 0;
}

/// A stdin that ends if no data arrives for a while, since another program may keep the pipe open.
class PatientStdin final : public std::streambuf {
 public:
  bool gave_up() const { return gave_up_; }

 protected:
  int_type underflow() override {
    pollfd wait{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&wait, 1, kWaitForMore);
    gave_up_ = ready == 0;
    const auto n = ready > 0 ? ::read(STDIN_FILENO, block_.data(), block_.size()) : 0;
    if (n <= 0) return traits_type::eof();
    setg(block_.data(), block_.data(), block_.data() + n);
    return traits_type::to_int_type(block_[0]);
  }

 private:
  std::vector<char> block_ = std::vector<char>(65536);
  bool gave_up_ = false;
};

size_t columns() {
  const auto width = terminal_columns();
  return width >= 60 ? width : 110;
}

int explain_stdin(bool json) {
  std::ios::sync_with_stdio(false);
  const auto report = explain_log(std::cin);
  print(json, json ? report.to_json() : Json(), json ? "" : report.str(columns()));
  return 0;
}

int explain_what_came() {
  PatientStdin patient;
  std::istream in(&patient);
  const auto report = explain_log(in);
  print(false, Json(), report.str(columns()));
  if (patient.gave_up()) std::fputs("no more input for 10 s; hint: npu_tool doctor --explain - waits for the end\n", stderr);
  return 0;
}

int explain_text(const std::string& text, bool json) {
  const auto found = explain(text);
  print(json, json ? explanation_json(found) : Json(), json ? "" : explanation_text(found, columns()));
  return 0;
}

/// Runs one step of a small transformer on generated images.
Finding training_step(const Device& device, const std::string& precision, const SimNpuOptions& sim_npu) {
  RunConfig config{.device = device.str(), .precision = precision, .sim_npu = sim_npu, .output = {.dir = ""}};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 32}, {"val_size", 16}, {"batch_size", 16}, {"num_workers", "0"}}};
  config.optimizer = {.name = "adamw", .options = {{"lr", 1e-3}}};
  config.trainer.fast_dev_run = true;
  // Without a log: the finding contains the messages.
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

/// Returns the selected devices; reports those that cannot be used in `out`.
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
  if (!args.html.empty()) write_page(args.html, report.to_html());
  print(args.json, args.json ? report.to_json() : Json(), args.json ? "" : report.str(columns()));
  if (!args.write_env.empty() && !args.json) print(false, {}, "the recommended environment is in " + args.write_env + "\n");
  return report.worst() == Verdict::Fail ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

int versions(bool json) {
  const auto host = HostView::live();
  const auto rows = environment_matrix(host, this_process());
  print(json, json ? matrix_json(rows, host) : Json(), json ? "" : matrix_text(rows, host, columns()));
  return 0;
}

int doctor(const DoctorArguments& args, const Parts& parts) {
  if (args.versions) return versions(args.json);
  if (args.asks && !args.explain.empty() && args.explain != "-")  // a symptom without quotes: append its other words
    return explain_text(args.words.empty() ? args.explain : args.explain + " " + join(args.words, " "), args.json);
  if (args.asks) {
    check(args.explain == "-" || !::isatty(STDIN_FILENO), ErrorKind::Usage, "doctor",
          "--explain needs a code, a symptom, or a log on stdin");
    return explain_stdin(args.json);
  }
  return is_bare(args) && log_on_stdin() ? explain_what_came() : examine(args, parts);
}

}  // namespace

/// Adds the options of --dist and returns them.
std::vector<CLI::Option*> add_dist_options(CLI::App& app, DistArguments& args) {
  auto* dist =
      app.add_flag("--dist", args.asked, "check and measure the collectives between processes that train together, and what they need");
  auto* nproc = app.add_option("--nproc", args.nproc, "with --dist: numbers of processes, as in 2,4; default: 1,2,4,8")->delimiter(',');
  auto* timeout = app.add_option("--timeout", args.timeout, "with --dist: seconds that a collective waits")->check(above_zero());
  auto* folder = app.add_option("--report-folder", args.folder, "of a process that --dist started")->group("");
  timeout->capture_default_str();
  for (auto* of_dist : {nproc, timeout, folder}) of_dist->needs(dist);
  return {dist, nproc};
}

void add_doctor(CLI::App& app, Command& run, std::function<int()>& launch) {
  auto args = std::make_shared<DoctorArguments>();
  auto* sub = app.add_subcommand("doctor", "check this machine, or explain an error code, a symptom or a log on stdin");
  auto* config = sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]: its device and output.dir are checked");
  auto* device =
      sub->add_option("--device", args->device, "check only this device: cpu, cuda[:i], npu[:i], sim_npu[:i]; default: all available ones");
  auto* output = sub->add_option("--output", args->output, "folder of the runs; its disk is checked; default: .");
  auto* no_hello = sub->add_flag("--no-hello", args->no_hello, "do not compute on the devices");
  auto* explain = sub->add_option("--explain", args->explain, "CODE or SYMPTOM (507018, 'out of memory'); - or no value: the log on stdin");
  explain->expected(0, 1);
  auto* write_env = sub->add_option("--write-env", args->write_env, "write the environment that this machine should have, for `source`");
  auto* html = sub->add_option("--html", args->html, "write a self-contained HTML page");
  for (auto* of_the_machine : {device, output, no_hello, write_env, html}) explain->excludes(of_the_machine);
  auto* versions = sub->add_flag("--versions", args->versions,
                                 "print the installed software for Ascend NPUs next to the recommended and the required versions");
  for (auto* other : {device, output, no_hello, write_env, html, explain}) versions->excludes(other);
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  auto dist_args = std::make_shared<DistArguments>();
  const auto dist = add_dist_options(*sub, *dist_args);
  for (auto* other : {config, device, output, no_hello, write_env, explain, versions}) dist[0]->excludes(other);
  sub->callback([args, dist_args, dist, &run, &launch, explain] {
    args->asks = explain->count() > 0;
    if (dist_args->asked) {
      dist_args->nproc_given = dist[1]->count() > 0;
      dist_args->json = args->json;
      dist_args->html = args->html;
      launch = [dist_args] { return doctor_dist(*dist_args); };
      return;
    }
    run = [args](const Parts& parts) { return doctor(*args, parts); };
  });
}

}  // namespace npu_train::cli
