#include "io/lock_holder.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {
namespace {

std::string boot_of_machine() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id.empty() ? host_name() : id;
}

std::string process_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

/// Returns field 22 of /proc/PID/stat; "" if the process does not exist, "?" if /proc is missing.
std::string start_of(int64_t process) {
  std::error_code error;
  if (!std::filesystem::exists("/proc/self/stat", error)) return "?";
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  auto at = text.rfind(')');  // the last one, because the process name before it may contain any character
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

}  // namespace

std::string LockHolder::str() const { return "process " + std::to_string(process) + " on host " + host + " since " + since; }

std::string LockHolder::file() const {
  return Json::object({{"host", host},
                       {"process", process},
                       {"since", since},
                       {"machine", machine},
                       {"processes", processes},
                       {"started", started},
                       {"beat", beat}})
             .dump() +
         "\n";
}

LockHolder this_holder() {
  return {.host = host_name(),
          .process = ::getpid(),
          .since = now_text(),
          .machine = boot_of_machine(),
          .processes = process_namespace(),
          .started = start_of(::getpid())};
}

std::optional<LockHolder> parse_holder(const std::string& text) {
  try {
    const auto json = parse_json(text, "run.lock");
    const auto word = [&](const char* key) { return json.at(key, "run.lock").text("run.lock"); };
    const auto number = [&](const char* key) { return json.at(key, "run.lock").integer("run.lock"); };
    return LockHolder{.host = word("host"),
                      .process = number("process"),
                      .since = word("since"),
                      .machine = word("machine"),
                      .processes = word("processes"),
                      .started = word("started"),
                      .beat = number("beat")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<bool> lives(const LockHolder& holder) {
  if (holder.processes != process_namespace() || holder.started == "?") return std::nullopt;
  return start_of(holder.process) == holder.started;
}

}  // namespace npu_train::detail
