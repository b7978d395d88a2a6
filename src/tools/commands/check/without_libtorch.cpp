// The checks of doctor that need no libtorch.
#include "doctor_options.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/doctor/dist_environment.hpp"
#include "npu_train/tools/doctor/environment_lint.hpp"
#include "tools/commands/console/console.hpp"

namespace npu_train::cli {
namespace {

constexpr const char* kWhy = "the check libtorch above";
constexpr const char* kFix = "fix the failures above";

std::vector<Finding> check_ranks(const HostView& host, const DistArguments& args) {
  auto out = check_dist_environment(host, network_facts(), args.nproc);
  out.push_back({"collectives", "start", Verdict::Fail, "no collective was tested: ranks need libtorch", kWhy, kFix});
  return out;
}

std::vector<Finding> check_host(const HostView& host, const ProcessFacts& process, const DoctorArguments& args) {
  std::vector<Finding> out;
  if (const auto config = split_words(args.words).file; !config.empty())
    out.push_back({"system", "configuration", Verdict::NotHere, config + " was not read: its keys are known only with libtorch", kWhy});
  for (auto& f : check_machine(host, process, {.output = args.output.empty() ? "." : args.output}).findings) out.push_back(std::move(f));
  if (!args.no_hello || !args.device.empty())
    out.push_back(
        {"hello", args.device.empty() ? "devices" : args.device, Verdict::Fail, "nothing was computed: it needs libtorch", kWhy, kFix});
  return out;
}

}  // namespace

int doctor_without_libtorch(const DoctorArguments& args, const Finding& broken, const std::string& torch_version) {
  check_writable({args.write_env, args.html});
  const auto host = HostView::live();
  const auto process = process_without_libtorch(torch_version);
  if (const auto code = print_software(args, process)) {
    std::fprintf(stderr, "warning: [doctor] %s; hint: %s\n", broken.finding.c_str(), broken.fix.c_str());
    return *code;
  }
  if (!args.write_env.empty()) write_file_atomic(args.write_env, required_environment(host, process));
  DoctorReport report{{broken}};
  report.add(args.dist.asked ? check_ranks(host, args.dist) : check_host(host, process, args));
  return print_findings(report, args);
}

}  // namespace npu_train::cli
