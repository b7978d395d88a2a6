#include "check_main.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "doctor_options.hpp"
#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/tools/doctor/program_start.hpp"
#include "tools/commands/console/console.hpp"

namespace npu_train::cli {
namespace {

struct Program {
  std::string path;  // path of npu_tool_torch
  std::string torch_version;
  char** argv;
};

Program program_with_libtorch(char** argv, const std::string& torch_version) {
  return {(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "npu_tool_torch").string(), torch_version, argv};
}

// Replaces this process by the program. Returns only if the program does not start, with an Error(Device) that explains why.
int become(const Program& program) {
  const auto host = HostView::live();
  if (finds_its_libraries(host, program.path)) ::execv(program.path.c_str(), program.argv);
  if (const auto broken = check_program_start(host, program.path, program.torch_version))
    throw Error(ErrorKind::Device, "npu_tool", broken->finding + "; " + broken->evidence,
                broken->fix + "; npu_tool doctor checks the rest of this machine");
  ::execv(program.path.c_str(), program.argv);  // this can still succeed, since the loader searches in more folders
  throw Error(ErrorKind::Device, "npu_tool", program.path + ": " + std::strerror(errno), "build npu_train again: scripts/setup");
}

// Runs the program with the arguments and the standard descriptors of this process. Returns the status of waitpid().
int run_to_its_end(const Program& program) {
  const pid_t child = ::fork();
  check(child >= 0, ErrorKind::Device, "npu_tool", "no process could be started: ", std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // so that a signal that ends this process also ends the program
    ::execv(program.path.c_str(), program.argv);
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool is_request_to_stop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGPIPE; }

int doctor(const DoctorArguments& args, const Program& program) {
  std::signal(SIGCHLD, SIG_DFL);  // while SIGCHLD is ignored, the end of a child process cannot be read
  if (!args.versions && !args.setup && !args.dist.asked)
    if (const auto code = explain_if_asked(args)) return *code;
  auto broken = check_program_start(HostView::live(), program.path, program.torch_version);
  if (!broken && args.dist.asked) return become(program);
  if (!broken) {
    const int status = run_to_its_end(program);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    if (is_request_to_stop(number)) return 128 + number;
    broken = {"system",
              "libtorch",
              Verdict::Fail,
              "the process that examined libtorch and the devices was ended by signal " + std::to_string(number) + " (" +
                  ::strsignal(number) + ")",
              program.path + " doctor; it starts, so its libraries were found",
              "npu_tool doctor --no-hello computes nothing, and --device cpu leaves out the accelerators: if these work, compare the "
              "versions of driver and torch_npu below; otherwise install libtorch " +
                  program.torch_version + " again"};
  }
  return doctor_without_libtorch(args, *broken, program.torch_version);
}

}  // namespace

int check_main(int argc, char** argv, const std::string& torch_version) {
  open_standard_descriptors();
  leave_stdout_to_main_rank();
  const auto program = program_with_libtorch(argv, torch_version);
  std::optional<DoctorArguments> args;
  if (argc > 1 && std::strcmp(argv[1], "doctor") == 0) {
    CLI::App app;
    add_doctor_options(app, [&](const DoctorArguments& given) { args = given; });
    try {
      const CLocale numbers;
      app.parse(argc, argv);
    } catch (const CLI::ParseError&) {
      args.reset();  // npu_tool_torch reports the error, with help on keys of the configuration
    }
  }
  return guarded([&] { return args ? doctor(*args, program) : become(program); });
}

}  // namespace npu_train::cli
