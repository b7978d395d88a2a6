// --nproc and related options of train_app and npu_tool launch.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace npu_train::cli {

struct LaunchArguments {
  int nproc = 1;
  int max_restarts = 0;
  int min_nproc = 0;  // 0: not given
};

void add_launch_options(CLI::App& app, LaunchArguments& args);

/// Runs a program as ranks on this host and returns the exit code; a failure is reported on stderr. Error(Usage) in a process that is
/// already a rank.
int launch(const LaunchArguments& args, const std::vector<std::string>& command, const std::vector<std::string>& restart_command = {});

/// Returns the command line of this process without the options of add_launch_options().
std::vector<std::string> rank_command(int argc, char** argv);

/// Returns the command with --resume auto in place of any other --resume.
std::vector<std::string> resumed_command(std::vector<std::string> command);

/// Runs `body`, a part of a training. After an Error(Peer) the process ends here, with the message on stderr: destructors and functions of
/// atexit() might wait for the failed rank. The exit code is 9, or 128 + the signal that ended the wait for other ranks.
void end_with_peer(const std::function<void()>& body);

}  // namespace npu_train::cli
