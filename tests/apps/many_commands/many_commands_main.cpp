// Runs the command lines of stdin as npu_tool and train_app would, each in a process of its own. The processes are forked from this one,
// which has loaded libtorch: its start takes far longer than the reading of a command line.
//
// Each line of stdin has the words of one command, separated by the character 31. Its output and messages go to stdout, and are followed by
// the character 30, the exit status and the end of the line.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "npu_train/core/process.hpp"
#include "npu_train/tools/commands/main.hpp"

namespace {

int run(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto argc = static_cast<int>(words.size());
  return words.at(0) == "train_app" ? npu_train::train_main(argc, argv.data()) : npu_train::tool_main(argc, argv.data());
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; std::getline(in, word, '\x1f');) words.push_back(word);
    std::fflush(stdout);
    const auto child = ::fork();
    if (child == 0) {
      ::dup2(1, 2);
      npu_train::end_process(run(std::move(words)));
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return 1;
    std::printf("\x1e%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
}
