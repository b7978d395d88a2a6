#include "npu_train/tools/doctor/program_start.hpp"

#include <sys/utsname.h>

#include <cstring>
#include <filesystem>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/library_search.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr const char* kBuildAgain = "build npu_train again: scripts/setup";

bool is_of_libtorch(const std::string& library) { return library.starts_with("libtorch") || library.starts_with("libc10"); }

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// A program that did not start, and the search for its libraries.
struct Start {
  const HostView& host;
  const std::string& program;
  const std::string& torch_version;
  const detail::ElfFacts& elf;
  const detail::LibrarySearch& search;

  std::string name() const { return std::filesystem::path(program).filename().string(); }

  std::string searched() const {
    const auto folder = std::filesystem::path(host.resolved(program)).parent_path();
    auto places = detail::library_path(host);
    const auto variable = places.empty() ? std::string("LD_LIBRARY_PATH (not set)") : "LD_LIBRARY_PATH (" + join(places) + ")";
    places.clear();
    for (auto place : elf.runpath) {
      if (place.empty()) continue;
      if (const auto at = place.find("$ORIGIN"); at != std::string::npos) place.replace(at, std::strlen("$ORIGIN"), folder.string());
      places.push_back(std::filesystem::path(place).lexically_normal().string());
    }
    return "searched: " + variable + ", the run path of the program (" + join(places) + "), the folders of ld.so.conf";
  }

  std::string built_with() const { return "it was built with libtorch " + torch_version; }

  std::string install() const {
    return "install libtorch " + torch_version + " (scripts/setup, or pip install torch==" + torch_version +
           ") and name its folder: export LD_LIBRARY_PATH=/path/to/torch/lib; for another version " + kBuildAgain;
  }

  // Returns the version of the libtorch in a folder, which may belong to a wheel or to libtorch's own archive.
  std::string version_in(const std::string& folder) const {
    const auto of_wheel = detail::value_of(host.read(folder + "/../version.py", 4096).value_or(""), "__version__", '=').value_or("");
    const auto quoted = of_wheel.find_first_not_of("'\" ");
    if (quoted != std::string::npos) return of_wheel.substr(quoted, of_wheel.find_last_not_of("'\" ") + 1 - quoted);
    return detail::first_line(host.read(folder + "/../build-version", 4096).value_or(""));
  }

  Finding failed(const std::string& why, const std::string& evidence, const std::string& fix) const {
    return {"system", "libtorch", Verdict::Fail, name() + " cannot start: " + why, evidence, fix};
  }
};

std::optional<Finding> missing_libraries(const Start& start) {
  std::vector<std::string> names;
  bool torch = false;
  for (const auto& missing : start.search.missing(start.program)) {
    names.push_back(missing.name);
    torch = torch || is_of_libtorch(missing.name);
  }
  if (names.empty()) return std::nullopt;
  return start.failed(detail::first_few(names, 8) + " not found", start.searched() + "; " + start.built_with(),
                      torch ? start.install()
                            : "install the packages that contain them (scripts/setup prints their names), or name their folder in "
                              "LD_LIBRARY_PATH");
}

std::optional<Finding> damaged_library(const Start& start) {
  for (const auto& name : start.elf.needed) {
    const auto path = start.search.find(name, start.program, start.elf);
    std::string why;
    if (path.empty() || detail::read_elf(start.host.path(path), why)) continue;
    return start.failed(path + " is damaged", why + "; " + start.built_with(),
                        is_of_libtorch(name) ? start.install() : "install the package of this library again");
  }
  return std::nullopt;
}

// Explains what the loader printed, or how the program ended.
Finding other_reason(const Start& start, const CommandResult& result) {
  const auto said = detail::first_line(result.output);
  if (has(said, "not found") && (has(said, "GLIBC") || has(said, "CXXABI")))
    return start.failed(said, "it was built on a newer system than this one", "build npu_train on this machine: scripts/setup");
  const auto library = start.search.find("libtorch_cpu.so", start.program, start.elf);
  const auto folder = std::filesystem::path(library).parent_path().string();
  const auto version = start.version_in(folder);
  const auto found = "libtorch " + (version.empty() ? "of an unknown version" : version) + " was found in " + folder;
  if (has(said, "undefined symbol") || has(said, "symbol lookup error"))
    return start.failed("the libraries that were found are not the version with which it was built",
                        found + "; " + start.built_with() + "; " + said, start.install());
  const auto how = result.end == CommandResult::End::Signalled
                       ? "signal " + std::to_string(result.status) + " (" + ::strsignal(result.status) + ") ended it"
                       : "exit status " + std::to_string(result.status) + (said.empty() ? "" : ": " + said);
  return start.failed(how, found + "; " + start.built_with(),
                      "a library is damaged, or was built for another processor: " + start.install());
}

}  // namespace

std::optional<Finding> check_program_start(const HostView& host, const std::string& program, const std::string& torch_version) {
  const auto result = host.run({program, "--parse-only"});
  std::string why;
  const auto elf = detail::read_elf(host.path(program), why);
  constexpr int kNotStarted = 126;  // 126 and above: shells and the loader use 126 and 127
  const bool ended_early = result.end == CommandResult::End::NotFound || result.end == CommandResult::End::Signalled ||
                           (result.end == CommandResult::End::Exited && (result.status >= kNotStarted || (result.status != 0 && !elf)));
  if (!ended_early) return std::nullopt;  // a program that is still loading at the timeout of run() has started, too
  utsname names{};
  const detail::LibrarySearch search(host, ::uname(&names) == 0 ? names.machine : "", {});
  const Start start{host, program, torch_version, elf ? *elf : detail::ElfFacts(), search};
  if (!host.exists(program) || !elf)
    return start.failed(host.exists(program) ? program + " is damaged" : "there is no " + program, why,
                        "install npu_train again: cmake --install; or " + std::string(kBuildAgain));
  if (auto missing = missing_libraries(start)) return missing;
  if (auto damaged = damaged_library(start)) return damaged;
  return other_reason(start, result);
}

bool finds_its_libraries(const HostView& host, const std::string& program) {
  std::string why;
  const auto elf = detail::read_elf(host.path(program), why);
  if (!elf) return false;
  utsname names{};
  const detail::LibrarySearch search(host, ::uname(&names) == 0 ? names.machine : "", {});
  for (const auto& name : elf->needed)
    if (search.find(name, program, *elf).empty()) return false;
  return true;
}

}  // namespace npu_train
