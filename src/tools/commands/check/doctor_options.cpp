#include "doctor_options.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>
#include <streambuf>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/environment_matrix.hpp"
#include "npu_train/tools/doctor/explain.hpp"
#include "npu_train/tools/doctor/setup_steps.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "tools/commands/console/console.hpp"
#include "tools/commands/console/number_checks.hpp"

namespace npu_train::cli {
namespace {

constexpr int kWaitForLog = 1000;     // milliseconds to wait for an idle pipe on stdin
constexpr int kWaitForMore = 10'000;  // milliseconds to wait for the next part of a log that is read without --explain

/// Whether there are no arguments. Only then is stdin read as a log, because scripts pass on unrelated stdins.
bool is_bare(const DoctorArguments& a) {
  return a.words.empty() && a.device.empty() && a.output.empty() && a.html.empty() && a.write_env.empty() && !a.asks && !a.json &&
         !a.no_hello && !a.versions && !a.setup;
}

/// Whether a log arrives on stdin: a file that is not empty, or a pipe with data.
bool log_on_stdin() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  if (S_ISREG(info.st_mode)) return info.st_size > 0;
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  return S_ISFIFO(info.st_mode) && ::poll(&wait, 1, kWaitForLog) > 0 && (wait.revents & POLLIN) != 0;
}

/// A stdin that ends when no data has arrived for a while, since another program may keep the pipe open.
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

// Like show(), but also wrapped if there is no terminal.
void show_wrapped(const Report& report, bool json) { print(json, report.json(), json ? "" : report.text(columns())); }

int explain_stdin(bool json) {
  std::ios::sync_with_stdio(false);
  show_wrapped(report_of(explain_log(std::cin)), json);
  return 0;
}

int explain_what_came() {
  PatientStdin patient;
  std::istream in(&patient);
  show_wrapped(report_of(explain_log(in)), false);
  if (patient.gave_up()) std::fputs("no more input for 10 s; hint: npu_tool doctor --explain - waits for the end\n", stderr);
  return 0;
}

int explain_text(const std::string& text, bool json) {
  show_wrapped(report_of(explain(text)), json);
  return 0;
}

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

}  // namespace

void add_doctor_options(CLI::App& app, const std::function<void(const DoctorArguments&)>& chosen) {
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
  auto* setup = sub->add_flag("--setup", args->setup,
                              "print the steps that install driver, firmware, CANN and torch_npu on this machine: what is found, what is "
                              "missing, and the commands; nothing is executed");
  for (auto* of_software : {versions, setup})
    for (auto* other : {device, output, no_hello, write_env, html, explain}) of_software->excludes(other);
  versions->excludes(setup);
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  const auto dist = add_dist_options(*sub, args->dist);
  for (auto* other : {config, device, output, no_hello, write_env, explain, versions, setup}) dist[0]->excludes(other);
  sub->callback([args, chosen, explain, nproc = dist[1]] {
    args->asks = explain->count() > 0;
    args->dist.nproc_given = nproc->count() > 0;
    args->dist.json = args->json;
    args->dist.html = args->html;
    chosen(*args);
  });
}

std::optional<int> explain_if_asked(const DoctorArguments& args) {
  if (args.asks && !args.explain.empty() && args.explain != "-")  // a symptom that was not quoted: appends its other words
    return explain_text(args.words.empty() ? args.explain : args.explain + " " + join(args.words, " "), args.json);
  if (args.asks) {
    check(args.explain == "-" || !::isatty(STDIN_FILENO), ErrorKind::Usage, "doctor",
          "--explain needs a code, a symptom, or a log on stdin");
    return explain_stdin(args.json);
  }
  if (is_bare(args) && log_on_stdin()) return explain_what_came();
  return std::nullopt;
}

std::optional<int> print_software(const DoctorArguments& args, const ProcessFacts& process) {
  if (!args.versions && !args.setup) return std::nullopt;
  const auto host = HostView::live();
  show_wrapped(args.setup ? report_of(setup_steps(host, process)) : matrix_report(environment_matrix(host, process), host), args.json);
  return 0;
}

int print_findings(const DoctorReport& report, const DoctorArguments& args) {
  const auto shown = report_of(report);
  if (!args.html.empty()) write_page(args.html, shown.html());
  show_wrapped(shown, args.json);
  if (!args.write_env.empty() && !args.json) print(false, {}, "the recommended environment is in " + args.write_env + "\n");
  return report.worst() == Verdict::Fail ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

}  // namespace npu_train::cli
