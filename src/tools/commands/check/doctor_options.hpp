// The command line of doctor, and the part of it that needs no libtorch: npu_tool runs that part itself.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train::cli {

struct DistArguments {
  std::vector<int> nproc{1, 2, 4, 8};  // world sizes to test
  bool asked = false, nproc_given = false;
  double timeout = 30;  // seconds after which a collective fails
  bool json = false;
  std::string html;
  std::string folder;  // report folder of a rank that this command started
};

struct DoctorArguments {
  std::vector<std::string> words;
  std::string device, output, explain, html, write_env;
  bool asks = false, json = false, no_hello = false, versions = false, setup = false;
  DistArguments dist;
};

/// Adds the subcommand doctor; `chosen` is called after its arguments have been read.
void add_doctor_options(CLI::App& app, const std::function<void(const DoctorArguments&)>& chosen);

/// Explains a code, a symptom or a log, if the arguments or stdin contain one. Returns the exit code; nullopt if the machine is to be
/// checked instead.
std::optional<int> explain_if_asked(const DoctorArguments& args);

/// Prints the environment matrix (--versions) or the steps of the installation (--setup). Returns the exit code; nullopt if neither is
/// requested.
std::optional<int> print_software(const DoctorArguments& args, const ProcessFacts& process);

/// Prints the report of a machine, and writes its page. Returns the exit code.
int print_findings(const DoctorReport& report, const DoctorArguments& args);

/// Checks the machine without libtorch, which is not available for the reason in `broken`. Returns the exit code.
int doctor_without_libtorch(const DoctorArguments& args, const Finding& broken, const std::string& torch_version);

}  // namespace npu_train::cli
