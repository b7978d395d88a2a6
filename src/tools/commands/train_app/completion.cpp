#include "completion.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Returns the options of a command and, if it takes a configuration, the overrides.
std::string words_of(const CLI::App& app, const std::vector<std::string>& overrides) {
  std::vector<std::string> out;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) out.push_back("--" + name);
  if (app.get_option_no_throw("config") != nullptr) out.insert(out.end(), overrides.begin(), overrides.end());
  return join(out, " ");
}

}  // namespace

void add_completion(CLI::App& app, const std::string& program, std::string& shell) {
  app.add_option("--completion", shell,
                 "print a script for bash or zsh that completes command lines: source <(" + program + " --completion bash)");
}

std::string completion_script(const CLI::App& app, const std::string& program, const std::string& shell,
                              const std::vector<std::string>& overrides) {
  check(shell == "bash" || shell == "zsh", ErrorKind::Usage, "--completion", "'", shell, "' is no shell known here; allowed: bash, zsh");
  std::string out = "# source <(" + program + " --completion " + shell + ")\n";
  if (shell == "zsh") out += "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n";
  out += "_" + program + "() {\n  local word=${COMP_WORDS[COMP_CWORD]} words=\"" + words_of(app, overrides);
  std::string cases;
  for (const auto* command : commands_of(app)) {
    out += " " + command->get_name();
    cases += "    " + command->get_name() + ") words=\"" + words_of(*command, overrides) + "\" ;;\n";
  }
  out += "\"\n";
  if (!cases.empty()) out += "  ((COMP_CWORD > 1)) && case ${COMP_WORDS[1]} in\n" + cases + "  esac\n";
  // Adds no space after a key, which needs its value to be complete.
  return out +
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  [[ ${COMPREPLY[0]} == *[=.] ]] && compopt -o nospace 2> /dev/null\n"
         "  return 0\n"
         "}\n"
         "complete -o default -F _" +
         program + " " + program + "\n";
}

}  // namespace npu_train::cli
