#include "launch_options.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cli.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/tools/launch/launcher.hpp"

namespace npu_train::cli {
namespace {

/// Returns `words` without an option and its value: --nproc 2, --nproc=2.
std::vector<std::string> without_option(const std::vector<std::string>& words, const std::string& option) {
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option)
      ++i;  // also skips the value
    else if (!words[i].starts_with(option + "="))
      out.push_back(words[i]);
  }
  return out;
}

void report(const std::string& message) { std::fprintf(stderr, "error: %s\n", npu_train::detail::visible_lines(message).c_str()); }

}  // namespace

void add_launch_options(CLI::App& app, LaunchArguments& args) {
  auto* nproc = app.add_option("--nproc", args.nproc, "number of processes to start on this machine, each with a device of its own")
                    ->check(CLI::Range(1, LaunchOptions::kMaxRanks));
  auto* restarts = app.add_option("--max-restarts", args.max_restarts, "how often to start all processes again after one failed")
                       ->check(CLI::Range(0, 1'000'000))
                       ->needs(nproc);
  app.add_option("--min-nproc", args.min_nproc, "let a restart leave out the processes that failed, down to this number")
      ->check(CLI::Range(1, LaunchOptions::kMaxRanks))
      ->needs(restarts);
}

int launch(const LaunchArguments& args, const std::vector<std::string>& command, const std::vector<std::string>& restart_command) {
  check(args.min_nproc <= args.nproc, ErrorKind::Usage, "--min-nproc", args.min_nproc, " is more than --nproc ", args.nproc);
  const auto own = launch_of_environment();
  check(own.world_size == 1, ErrorKind::Usage, "--nproc", "this process is already rank ", own.rank, " of ", own.world_size,
        ", started by ", own.launcher, "; hint: omit --nproc, or let ", own.launcher, " start one process");
  if (const auto cores = cpu_count(); args.nproc > cores) log_warning("[--nproc] ", args.nproc, " processes share ", cores, " processors");
  const auto result = launch_ranks({.command = command,
                                    .restart_command = restart_command,
                                    .nproc = args.nproc,
                                    .max_restarts = args.max_restarts,
                                    .min_nproc = args.min_nproc});
  if (!result.message.empty()) report("[launch] " + result.message);
  return result.exit_code;
}

std::vector<std::string> rank_command(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) words[0] = program.string();
  for (const char* option : {"--nproc", "--max-restarts", "--min-nproc"}) words = without_option(words, option);
  return words;
}

std::vector<std::string> resumed_command(std::vector<std::string> command) {
  command = without_option(command, "--resume");
  command.insert(command.begin() + 1, {"--resume", "auto"});
  return command;
}

void end_with_peer(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Peer) throw;
    report(e.what());
    std::fflush(nullptr);
    ::_exit(is_stopped_wait(e) ? 128 + signal_received() : e.exit_code());
  }
}

}  // namespace npu_train::cli
