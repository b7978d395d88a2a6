#include "npu_train/tools/doctor/setup_steps.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

using State = SetupStep::State;

constexpr const char* kUser = "HwHiAiUser";  // the group that the driver gives access to its device nodes

// The versions to install: CANN for the version of torch_npu, and the driver for that CANN.
struct Wanted {
  std::string torch_npu, cann, driver, driver_minimum, note;
};

Wanted wanted_versions(const ProcessFacts& process) {
  Wanted out;
  const auto torch = Version::parse(process.torch_headers);
  out.torch_npu = torch ? torch->minor() : "";
  auto rule = version_rule("cann_for_torch_npu", process.torch_headers);
  if (!rule) {
    const auto known = version_keys("cann_for_torch_npu");
    if (!known.empty()) rule = version_rule("cann_for_torch_npu", known.back());
    out.note = " is the newest that is known here: the table of " + version_matrix_date() + " ends with torch_npu " +
               (known.empty() ? "" : known.back()) + "; COMPATIBILITY.md of https://gitcode.com/Ascend/pytorch has later ones";
  }
  if (rule) out.cann = rule->recommended;
  if (const auto driver = version_rule("driver_for_cann", out.cann)) {
    out.driver = driver->recommended;
    out.driver_minimum = driver->minimum;
  }
  return out;
}

State state_of(const std::string& here, const std::string& least) {
  if (here.empty()) return State::Missing;
  const auto found = Version::parse(here), minimum = Version::parse(least);
  if (!found || !minimum) return State::Unknown;
  return *found < *minimum ? State::TooOld : State::Done;
}

// The names of a machine's packages; CHIP stands for the name of an unknown chip.
struct Packages {
  std::string hdk, ops, machine;

  std::string driver(const std::string& version) const {  // x86 files of the driver are named x86-64, those of CANN x86_64
    return hdk + "-npu-driver_" + to_lower(version) + "_linux-" + (machine == "x86_64" ? "x86-64" : machine) + ".run";
  }
  std::string firmware() const { return hdk + "-npu-firmware_*.run"; }
  std::string toolkit(const std::string& version) const { return "Ascend-cann-toolkit_" + version + "_linux-" + machine + ".run"; }
  std::string operators(const std::string& version) const {
    return "Ascend-cann-" + ops + "-ops_" + version + "_linux-" + machine + ".run";
  }
};

SetupStep npu_step(const detail::AscendFacts& ascend, const std::optional<detail::AscendChipFacts>& chip) {
  SetupStep out{"NPU"};
  out.found = ascend.pci.empty() ? "no NPU on the PCI bus" : join(ascend.pci) + " on the PCI bus";
  if (!ascend.nodes.empty()) out.found += ", " + std::to_string(ascend.nodes.size()) + " in /dev";
  if (chip) out.found += "; its chip: " + chip->prefix + " (" + chip->family + ")";
  if (chip) {
    out.state = State::Done;
  } else if (ascend.device()) {
    out.needed = "the chip is not known here: put its name for CHIP in the names of the packages";
    out.commands = {"npu-smi info"};
  } else {
    out.state = State::Missing;
    out.needed = "the following steps are for a machine with an NPU; CHIP stands for its name in the names of the packages";
    out.commands = {"lspci -d 19e5:"};
  }
  return out;
}

SetupStep user_step(const HostView& host) {
  const auto groups = host.read("/etc/group").value_or("");
  const auto lines = detail::split(groups, '\n');
  const bool there = std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with(std::string(kUser) + ":"); });
  SetupStep out{"user of the driver", there ? State::Done : State::Missing, std::string(there ? "" : "no ") + "group " + kUser};
  out.needed = "the driver gives this group access to the device nodes";
  if (!there)
    out.commands = {"sudo groupadd HwHiAiUser", "sudo useradd -g HwHiAiUser -d /home/HwHiAiUser -m HwHiAiUser -s /bin/bash",
                    "sudo usermod -aG HwHiAiUser $USER"};
  return out;
}

// Adds the driver and the firmware. A new driver is installed before the firmware, an installed one is replaced after it.
void add_driver_steps(const HostView& host, const detail::AscendFacts& ascend, const Wanted& wanted, const Packages& packages,
                      std::vector<SetupStep>& out) {
  const auto folder = ascend.driver.substr(0, ascend.driver.rfind('/')) + "/firmware";
  const auto version = detail::value_of(host.read(folder + "/version.info", 65536).value_or(""), "Version", '=').value_or("");
  SetupStep driver{"driver", state_of(ascend.driver_version, wanted.driver_minimum),
                   ascend.driver_version.empty() ? "no driver in " + ascend.driver : "driver " + ascend.driver_version,
                   wanted.driver + " is recommended for CANN " + wanted.cann + ", at least " + wanted.driver_minimum + " is needed"};
  SetupStep firmware{"firmware", version.empty() ? State::Missing : State::Done,
                     version.empty() ? "no firmware in " + folder : "firmware " + version, "the one of the same Ascend HDK as the driver"};
  const bool replaces = driver.state == State::TooOld;
  const std::string how = replaces ? " --upgrade" : " --full";
  const auto file = packages.driver(wanted.driver);
  if (driver.state != State::Done) driver.commands = {"sudo bash ./" + file + how + (replaces ? "" : " --install-for-all")};
  if (replaces) firmware.state = State::TooOld;
  if (firmware.state != State::Done) firmware.commands = {"sudo bash ./" + packages.firmware() + how};
  const bool changed = driver.state != State::Done || firmware.state != State::Done;
  out.push_back(replaces ? firmware : driver);
  out.push_back(replaces ? driver : firmware);
  SetupStep smi{"npu-smi", ascend.smi.chips.empty() ? State::Missing : State::Done,
                ascend.smi.chips.empty() ? "npu-smi lists no chip" : "npu-smi lists " + std::to_string(ascend.smi.chips.size()),
                "a new driver needs a restart; in a container, map the devices and the driver instead"};
  if (smi.state != State::Done || changed) smi.commands = {"sudo reboot", "npu-smi info"};
  if (changed && smi.state == State::Done) smi.state = State::Unknown;
  out.push_back(smi);
}

void add_cann_steps(const detail::CannFacts& cann, const Wanted& wanted, const Packages& packages, std::vector<SetupStep>& out) {
  SetupStep toolkit{"CANN", cann.home.empty() ? State::Missing : state_of(cann.version, wanted.cann),
                    cann.home.empty() ? "no CANN in /usr/local/Ascend and $HOME/Ascend"
                                      : "CANN " + (cann.version.empty() ? "of an unknown version" : cann.version) + " in " + cann.home,
                    wanted.cann + (wanted.note.empty() ? " is what torch_npu " + wanted.torch_npu + " is built for" : wanted.note)};
  if (!cann.home.empty() && cann.version.empty()) toolkit.state = State::Unknown;
  if (toolkit.state != State::Done) toolkit.commands = {"bash ./" + packages.toolkit(wanted.cann) + " --install"};
  SetupStep operators{"operators of the chip", state_of(cann.operators, wanted.cann),
                      cann.operators.empty() ? "no package of operators" : "a package of operators " + cann.operators,
                      "the package of this chip, in the version of CANN"};
  if (operators.state != State::Done) operators.commands = {"bash ./" + packages.operators(wanted.cann) + " --install"};
  SetupStep compiler{"Python packages of CANN", State::Unknown, "not looked for", "the compiler of operators imports them"};
  compiler.commands = {
      "python3 -m pip install attrs cython numpy decorator sympy cffi pyyaml pathlib2 psutil protobuf==3.20.0 scipy requests absl-py"};
  SetupStep environment{"environment of CANN", cann.from_environment ? State::Done : State::Missing,
                        cann.from_environment ? "ASCEND_HOME_PATH is set" : "ASCEND_HOME_PATH is not set in this shell"};
  if (!cann.from_environment)
    environment.commands = {"source " + (cann.set_env.empty() ? std::string("/usr/local/Ascend/cann/set_env.sh") : cann.set_env)};
  for (auto& step : {toolkit, operators, compiler, environment}) out.push_back(step);
}

SetupStep torch_npu_step(const HostView& host, const ProcessFacts& process, const Wanted& wanted) {
  const auto here = detail::torch_npu_here(host, process);
  const auto version = Version::parse(here), least = Version::parse(wanted.torch_npu);
  const bool same = version && version->minor() == wanted.torch_npu;
  const auto state = here.empty()                            ? State::Missing
                     : same                                  ? State::Done
                     : version && least && *least < *version ? State::TooNew
                                                             : State::TooOld;
  SetupStep out{"torch_npu", state, here.empty() ? "no torch_npu" : "torch_npu " + here,
                "the minor version of libtorch " + process.torch_headers};
  if (out.state != State::Done) out.commands = {"python3 -m pip install 'torch-npu==" + wanted.torch_npu + ".*' numpy pyyaml"};
  return out;
}

}  // namespace

const char* setup_state_name(SetupStep::State state) {
  switch (state) {
    case State::Done:
      return "done";
    case State::Missing:
      return "missing";
    case State::TooOld:
      return "too old";
    case State::TooNew:
      return "too new";
    case State::Unknown:
      break;
  }
  return "unknown";
}

std::vector<SetupStep> setup_steps(const HostView& host, const ProcessFacts& process) {
  const auto ascend = detail::ascend_facts(host);
  const auto chip = detail::chip_here(ascend);
  const auto wanted = wanted_versions(process);
  const auto name = [&](std::string text, const char* otherwise) { return text.empty() ? otherwise : text; };
  const Packages packages{name(chip ? chip->hdk : "", "Ascend-hdk-CHIP"), name(chip ? chip->ops : "", "CHIP"), process.machine};
  std::vector<SetupStep> out = {npu_step(ascend, chip), user_step(host)};
  add_driver_steps(host, ascend, wanted, packages, out);
  add_cann_steps(ascend.cann, wanted, packages, out);
  out.push_back(torch_npu_step(host, process, wanted));
  out.push_back({"variables",
                 State::Unknown,
                 "checked by the last step",
                 "the settings that this machine should have",
                 {"npu_tool doctor --no-hello --write-env env.sh", "source env.sh"}});
  out.push_back(
      {"check", State::Unknown, "not run", "all of it together, with a training step on the NPU", {"npu_tool doctor --device npu"}});
  return out;
}

Report report_of(const std::vector<SetupStep>& steps) {
  const auto done = std::count_if(steps.begin(), steps.end(), [](const auto& step) { return step.state == State::Done; });
  Report out("Setup for Ascend NPUs", Json::object({{"as_of", version_matrix_date()}, {"done", static_cast<int64_t>(done)}}));
  out.say(std::to_string(done) + " of " + std::to_string(steps.size()) +
          " steps are done; nothing was installed or changed. Packages: https://www.hiascend.com/developer/download");
  ReportTable table{.layout = ReportTable::Layout::List, .apart = true};
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    const auto* state = setup_state_name(step.state);
    table.add({both("state", state), both("name", "step", {step.name, std::to_string(i + 1) + ". " + step.name}), both("found", step.found),
               both("needed", step.needed), data("commands", detail::json_list(step.commands)), shown("run", join(step.commands, "; "))});
  }
  out.table("steps", std::move(table));
  return out;
}

}  // namespace npu_train
