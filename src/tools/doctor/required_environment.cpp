#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/environment_lint.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/cpu_facts.hpp"
#include "tools/doctor/library_search.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

// Quotes any text for a shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Replaces control characters, so that any value is safe in a comment line.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return text;
}

// A shell script in which each line has its reason above it.
class Script {
 public:
  void line(const std::string& why, const std::string& command) { text_ += "\n# " + why + "\n" + command + "\n"; }
  void set(const HostView& host, const std::string& name, const std::string& value, const std::string& why) {
    if (host.variable(name) != value) line(why, "export " + name + "=" + quoted(value));
  }
  // Adds a problem that a line of the script cannot fix.
  void by_hand(const Finding& f) { text_ += "\n# By hand: " + one_line(f.name + ": " + f.finding + "; " + f.fix) + "\n"; }
  const std::string& str() const { return text_; }

 private:
  std::string text_ = "# The environment that npu_tool doctor recommends for this machine (versions as of " + version_matrix_date() +
                      "). Use: source THIS_FILE\n";
};

std::vector<std::string> without_stubs(const std::vector<std::string>& folders) {
  std::vector<std::string> out;
  for (const auto& folder : folders) {
    const bool stub = detail::has_part(folder, "devlib") || detail::has_part(folder, "stub") || detail::has_part(folder, "stubs");
    if (!stub && std::find(out.begin(), out.end(), folder) == out.end()) out.push_back(folder);
  }
  return out;
}

// Adds CANN's script and the driver's folders if the loader cannot find the libraries of CANN and of the driver without them.
void want_libraries(const HostView& host, const detail::AscendFacts& ascend, const ProcessFacts& process, Script& out) {
  auto folders = without_stubs(detail::library_path(host));
  auto clean = host;
  clean.environment["LD_LIBRARY_PATH"] = join(folders, ":");
  const detail::LibrarySearch search(clean, process.machine, {});
  const bool script = !ascend.cann.set_env.empty() && (!ascend.cann.from_environment || search.find("libascendcl.so").empty());
  if (search.find("libascend_hal.so").empty())
    for (const char* part : {"/lib64", "/lib64/common", "/lib64/driver"})
      if (host.is_folder(ascend.driver + part)) folders.insert(folders.begin(), ascend.driver + part);
  if (folders != detail::library_path(host) && !folders.empty())
    out.line("the driver's libraries, without stub folders (stubs link but cannot run)",
             "export LD_LIBRARY_PATH=" + quoted(join(folders, ":")));
  if (script) out.line("CANN's own variables: ASCEND_HOME_PATH, ASCEND_OPP_PATH, its libraries", "source " + quoted(ascend.cann.set_env));
}

void want_ascend(const HostView& host, const detail::AscendFacts& ascend, const ProcessFacts& process, Script& out) {
  want_libraries(host, ascend, process, out);
  if (host.variable("PYTORCH_NPU_ALLOC_CONF").empty() && host.variable("PYTORCH_ALLOC_CONF").empty())
    out.set(host, "PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True", "memory that was freed in pieces can be reused for large tensors");
  out.set(host, "TASK_QUEUE_ENABLE", host.variable("TASK_QUEUE_ENABLE") == "2" ? "2" : "1", "a second thread submits operators to the NPU");
  if (detail::whole_number(host.variable("WORLD_SIZE")).value_or(1) > 1 || ascend.nodes.size() > 1) {
    if (host.variable("HCCL_CONNECT_TIMEOUT").empty())
      out.set(host, "HCCL_CONNECT_TIMEOUT", "600", "the start waits for ranks that load data for minutes");
    if (host.variable("HCCL_WHITELIST_DISABLE").empty())
      out.set(host, "HCCL_WHITELIST_DISABLE", "1", "ranks need no list of allowed hosts");
  }
}

// Unsets invalid and harmful variables. Returns the machine without them.
HostView without_wrong(const HostView& host, const ProcessFacts& process, Script& out) {
  auto clean = host;
  const auto drop = [&](const std::string& why, const std::vector<std::string>& names) {
    out.line(why, "unset " + join(names, " "));
    for (const auto& name : names) clean.environment.erase(name);
  };
  for (const auto& f : lint_environment(host)) {
    if (f.verdict == Verdict::Ok || f.name == "ASCEND_HOME_PATH" || f.name == "ASCEND_OPP_PATH") continue;
    if (host.has_variable(f.name)) {
      drop(one_line(f.finding), {f.name});
    } else {
      out.by_hand(f);
    }
  }
  if (host.variable("INF_NAN_MODE_ENABLE") == "0" || host.variable("INF_NAN_MODE_FORCE_DISABLE") == "1")
    drop("an overflow results in inf and NaN, if the chip supports it", {"INF_NAN_MODE_ENABLE", "INF_NAN_MODE_FORCE_DISABLE"});
  for (const auto& f : check_cpu(host, process))
    if (f.name == "kernels" && f.verdict != Verdict::Ok && host.has_variable("ATEN_CPU_CAPABILITY"))
      drop(one_line(f.finding), {"ATEN_CPU_CAPABILITY"});
  if (host.variable("NVIDIA_TF32_OVERRIDE") == "1" && process.cuda_runtime > 0)
    drop("fp32 products keep their 23-bit mantissa", {"NVIDIA_TF32_OVERRIDE"});
  return clean;
}

}  // namespace

std::string required_environment(const HostView& host, const ProcessFacts& process) {
  Script out;
  const auto clean = without_wrong(host, process, out);
  const auto ascend = detail::ascend_facts(clean);
  const auto cpu = detail::cpu_facts(clean);
  if (ascend.device()) want_ascend(clean, ascend, process, out);
  const auto devices = std::max<size_t>(1, ascend.nodes.size());
  const auto threads = std::max<int>(1, cpu.usable() / static_cast<int>(devices));
  if (devices > 1 || process.threads > cpu.usable())
    out.set(clean, "OMP_NUM_THREADS", std::to_string(threads),
            devices > 1 ? "processors / NPUs, so that one process per NPU fits" : "as many threads as this process has processors");
  if (process.cuda_runtime > 0)
    out.set(clean, "CUBLAS_WORKSPACE_CONFIG", ":4096:8", "with deterministic: true, products on a GPU are repeatable bit for bit");
  const bool nothing = out.str().find("\n\n# ") == std::string::npos;
  return out.str() + (nothing ? "\n# Nothing: no variable needs a change.\n" : "");
}

}  // namespace npu_train
