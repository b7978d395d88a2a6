#include "commands.hpp"
#include "run_record.hpp"

namespace npu_train::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string html;
  bool json = false;
};

int report(const ReportArguments& args) {
  check_writable({args.html});
  show(report_of(read_runs(args.runs)), args.json, args.html);
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Command& run) {
  auto args = std::make_shared<ReportArguments>();
  auto* sub = app.add_subcommand("report", "results and curves of training runs, and the settings in which they differ");
  sub->add_option("runs", args->runs, "RUN [RUN ...]: folders of runs, finished or not")->required();
  sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts&) { return report(*args); }; });
}

}  // namespace npu_train::cli
