// npu_tool launch: starts any program as the ranks of a run.
#include <algorithm>
#include <memory>
#include <string_view>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "tools/commands/train_app/launch_options.hpp"

namespace npu_train::cli {

void drop_launch_separator(int& argc, char** argv) {
  const auto is_option = [&](int i) { return i < argc && std::string_view(argv[i]).starts_with("--") && argv[i][2] != '\0'; };
  int i = 1;
  while (is_option(i)) ++i;
  if (i >= argc || argv[i] != std::string_view("launch")) return;
  ++i;
  while (is_option(i)) i += std::string_view(argv[i]).find('=') == std::string_view::npos ? 2 : 1;  // skips the option and its value
  if (i >= argc || argv[i] != std::string_view("--")) return;
  std::copy(argv + i + 1, argv + argc + 1, argv + i);  // including the terminating null pointer
  --argc;
}

void add_launch(CLI::App& app, std::function<int()>& run) {
  auto args = std::make_shared<LaunchArguments>();
  auto* sub = app.add_subcommand("launch", "run a program as several processes that train together: launch --nproc N PROGRAM ARGUMENTS...");
  add_launch_options(*sub, *args);
  sub->get_option("--nproc")->required();
  sub->prefix_command();  // all words from the program on belong to the program
  sub->callback([args, sub, &run] {
    run = [args, sub] {
      const auto command = sub->remaining();
      check(!command.empty(), ErrorKind::Usage, "launch", "no program is given; hint: npu_tool launch --nproc 2 PROGRAM ARGUMENTS...");
      return launch(*args, command);
    };
  });
}

}  // namespace npu_train::cli
