#include <algorithm>
#include <set>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/library_search.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

std::string source_line(const CannFacts& cann) {
  return "source " + (cann.set_env.empty()
                          ? std::string("/usr/local/Ascend/ascend-toolkit/set_env.sh (since CANN 8.5 /usr/local/Ascend/cann/set_env.sh)")
                          : cann.set_env);
}

Finding chip_finding(const AscendFacts& ascend) {
  std::set<std::string> names;
  for (const auto& chip : ascend.smi.chips) names.insert(chip.name);
  if (names.empty()) return {kAscend, "chip", Verdict::NotHere, "the chip is unknown: npu-smi lists none", join(ascend.pci), ""};
  const auto& name = *names.begin();
  const auto chip = chip_facts(name, ascend.smi.physical_ids);
  const auto evidence = "npu-smi info: " + join({names.begin(), names.end()});
  if (!chip)
    return {kAscend,
            "chip",
            Verdict::Warn,
            "the chip '" + name + "' is unknown to npu_train, which assumes bf16 and IEEE 754 overflow",
            evidence,
            "known chips: " + join(chip_families()) +
                "; a newer torch_npu may support it. Compare it with the CPU first: npu_tool validate CONFIG --device npu"};
  Finding f{kAscend, "chip", Verdict::Ok,
            name + " (" + chip->family + "): " + (chip->bf16 ? "bf16 and fp16" : "fp16, but no bf16: precision 16-mixed"), evidence};
  if (names.size() > 1) {
    f.verdict = Verdict::Warn;
    f.finding = "different kinds of chips: " + join({names.begin(), names.end()});
    f.fix = "train on chips of one kind (ASCEND_RT_VISIBLE_DEVICES): the slowest one determines the speed, and numbers may differ";
  }
  return f;
}

// Reports what an overflow results in, according to the chip and the two variables that torch_npu reads.
Finding overflow_finding(const HostView& host, const AscendFacts& ascend) {
  const auto enable = host.variable("INF_NAN_MODE_ENABLE"), force = host.variable("INF_NAN_MODE_FORCE_DISABLE");
  Finding f{kAscend, "overflow mode", Verdict::Ok, "",
            "INF_NAN_MODE_ENABLE is " + (enable.empty() ? "not set" : enable) + ", INF_NAN_MODE_FORCE_DISABLE is " +
                (force.empty() ? "not set" : force)};
  const auto chip = ascend.smi.chips.empty() ? std::nullopt : chip_here(ascend);
  if (!chip) {
    f.verdict = Verdict::NotHere;
    f.finding = "depends on the chip, which is unknown";
    return f;
  }
  if (chip->overflow == "saturates") {
    f.finding =
        "an overflow results in the largest number and sets a flag, which npu_train reads after each step; the variables have no effect on "
        "this "
        "chip";
    return f;
  }
  f.finding = "an overflow results in inf and NaN, as in IEEE 754";
  if (chip->overflow == "ieee") return f;
  if (enable == "0" && force != "1") {
    f.verdict = Verdict::Fail;
    f.finding = "torch_npu refuses to start: INF_NAN_MODE_ENABLE=0 requests saturation on a chip with IEEE 754 overflow";
    f.fix = "unset INF_NAN_MODE_ENABLE; to force saturation, also set INF_NAN_MODE_FORCE_DISABLE=1";
  } else if (force == "1") {
    f.verdict = Verdict::Warn;
    f.finding = "saturation is forced: an overflow results in the largest number and NaN becomes 0, so a broken training looks healthy";
    f.fix = "unset INF_NAN_MODE_FORCE_DISABLE unless a comparison with an older chip requires it";
  }
  return f;
}

Finding cann_finding(const HostView& host, const AscendFacts& ascend) {
  const auto& cann = ascend.cann;
  if (cann.home.empty())
    return {kAscend,
            "CANN",
            Verdict::Fail,
            "CANN is not installed in a usual place, and ASCEND_HOME_PATH is not set",
            "looked in /usr/local/Ascend and $HOME/Ascend",
            "install the version of CANN that your torch_npu requires, and run its set_env.sh in this shell"};
  if (!cann.from_environment)
    return {kAscend,
            "CANN",
            Verdict::Fail,
            "CANN is installed in " + cann.home + ", but its environment is not set in this shell",
            "ASCEND_HOME_PATH is not set",
            source_line(cann)};
  std::vector<std::string> missing;
  if (!host.is_folder(cann.home)) missing.push_back(cann.home);
  for (const char* part : {"runtime", "compiler"})
    if (missing.empty() && !host.is_folder(cann.home + "/" + part)) missing.push_back(cann.home + "/" + part);
  const auto operators = host.variable("ASCEND_OPP_PATH");
  if (operators.empty()) {
    missing.emplace_back("ASCEND_OPP_PATH (not set)");
  } else if (!host.is_folder(operators)) {
    missing.push_back(operators + " (ASCEND_OPP_PATH)");
  }
  if (!missing.empty())
    return {kAscend,
            "CANN",
            Verdict::Fail,
            "missing: " + join(missing),
            "ASCEND_HOME_PATH is " + cann.home,
            source_line(cann) + "; if it is set already, install the missing package (toolkit, operators of the chip)"};
  if (cann.version.empty())
    return {kAscend,
            "CANN",
            Verdict::Warn,
            "CANN in " + cann.home + " does not report its version",
            "no ascend_*_install.info has a line version=",
            "reinstall it, or take the version from the name of its package"};
  return {kAscend, "CANN", Verdict::Ok, "CANN " + cann.version, cann.version_file};
}

Finding driver_for_cann_finding(const AscendFacts& ascend) {
  const auto rule = version_rule("driver_for_cann", ascend.cann.version);
  const auto here = Version::parse(ascend.driver_version), least = Version::parse(rule ? rule->minimum : "");
  const auto pair = "driver " + ascend.driver_version + " with CANN " + ascend.cann.version;
  const auto table = "table of " + version_matrix_date();
  if (!rule || !here || !least)
    return {kAscend,
            "driver for CANN",
            Verdict::Warn,
            "the compatibility of " + pair + " is unknown",
            table + " contains CANN " + join(version_keys("driver_for_cann")),
            "look it up in the release notes of this CANN (its table of Ascend HDK versions)"};
  const auto evidence =
      table + ": CANN " + rule->key + " requires driver " + rule->minimum + " or newer; recommended: " + rule->recommended;
  if (*here < *least)
    return {kAscend,       "driver for CANN",
            Verdict::Fail, pair + ": the driver is too old",
            evidence,      "install driver " + rule->recommended + " (Ascend HDK) on the host and reboot, or use an older CANN"};
  return {kAscend, "driver for CANN", Verdict::Ok, pair + " are compatible", evidence};
}

bool is_stub_folder(const std::string& folder) {
  return has_part(folder, "devlib") || has_part(folder, "stub") || has_part(folder, "stubs");
}

// Returns the version of CANN that a folder belongs to: ".../ascend-toolkit/8.5.0/..." or ".../cann-9.1.0/..."; "" for none.
std::string cann_of(const HostView& host, const std::string& folder) {
  const auto parts = split(host.resolved(folder), '/');
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].starts_with("cann-") && Version::parse(parts[i].substr(5))) return parts[i].substr(5);
    if (parts[i] == "ascend-toolkit" && i + 1 < parts.size() && Version::parse(parts[i + 1])) return parts[i + 1];
  }
  return "";
}

Finding library_path_finding(const HostView& host, const AscendFacts& ascend, const LibrarySearch& search) {
  const auto folders = library_path(host);
  std::set<std::string> versions;
  std::string stub, real;
  for (const auto& folder : folders) {
    if (const auto version = cann_of(host, folder); !version.empty()) versions.insert(version);
    for (const char* file : {"libascendcl.so", "libascend_hal.so", "libhccl.so"}) {
      if (!host.exists(folder + "/" + file)) continue;
      if (is_stub_folder(folder) && stub.empty() && real.empty()) stub = folder;
      if (!is_stub_folder(folder)) real = real.empty() ? folder : real;
    }
  }
  Finding f{kAscend, "library path", Verdict::Ok, "in LD_LIBRARY_PATH, the runtime's libraries precede all stubs",
            "LD_LIBRARY_PATH=" + shortened(host.variable("LD_LIBRARY_PATH"), 600)};
  if (!stub.empty()) {
    f.verdict = Verdict::Fail;
    f.finding = stub + " precedes the real libraries: its stubs link but cannot run (error 100039)";
    f.fix = "remove devlib and stub folders from LD_LIBRARY_PATH; they are only for compiling";
  } else if (versions.size() > 1) {
    f.verdict = Verdict::Warn;
    f.finding = "libraries of several versions of CANN are mixed: " + join({versions.begin(), versions.end()});
    f.fix = "start a new shell and run set_env.sh of one CANN only";
  } else if (real.empty()) {
    const auto system = search.find("libascendcl.so");
    f.finding = system.empty() ? "CANN's libraries are in no folder that the loader searches"
                               : "the loader finds CANN's libraries by itself: " + system;
    if (system.empty()) {
      f.verdict = Verdict::Fail;
      f.fix = source_line(ascend.cann);
    }
  }
  return f;
}

}  // namespace

std::vector<Finding> cann_findings(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process) {
  std::vector<Finding> out = {chip_finding(ascend), overflow_finding(host, ascend), cann_finding(host, ascend)};
  if (!ascend.driver_version.empty() && !ascend.cann.version.empty()) out.push_back(driver_for_cann_finding(ascend));
  if (!ascend.cann.home.empty()) out.push_back(library_path_finding(host, ascend, LibrarySearch(host, process.machine, {})));
  return out;
}

}  // namespace npu_train::detail
