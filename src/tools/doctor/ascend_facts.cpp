#include "tools/doctor/ascend_facts.hpp"
#include "npu_train/core/facts_table.hpp"

#include <algorithm>
#include <cctype>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/environment_matrix.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/facts/ascend_chips.hpp"
#include "tools/doctor/parse.hpp"
#include "tools/doctor/pci.hpp"

namespace npu_train::detail {
namespace {

const std::vector<std::vector<std::string>>& chip_rows() {
  static const auto rows = facts_texts(facts::ascend_chips, "ascend_chips.tsv", 10);
  return rows;
}

AscendChipFacts chip_of_row(const std::vector<std::string>& row) {
  return {row[0], row[2], row[3] == "yes", row[4], row[5], row[6], row[7], row[8], row[9]};
}

// Returns the default locations of CANN.
std::vector<std::string> cann_places(const HostView& host) {
  std::vector<std::string> bases = {"/usr/local/Ascend"};
  if (const auto home = host.variable("HOME"); home.starts_with("/")) bases.push_back(home + "/Ascend");
  std::vector<std::string> out;
  for (const auto& base : bases) {
    out.push_back(base + "/ascend-toolkit/latest");
    out.push_back(base + "/cann");
    for (const auto& name : host.list(base))
      if (name.starts_with("cann-")) out.push_back(base + "/" + name);
  }
  return out;
}

// Reads the lines version=9.1.0 of the files ascend_*_install.info in the folder or in the architecture's subfolder. The version of CANN is
// that of the toolkit or, without a toolkit, that of another package.
void read_cann_version(const HostView& host, CannFacts& cann) {
  const auto home = host.resolved(cann.home);
  std::vector<std::string> folders = {home};
  for (const auto& name : host.list(home))
    if (name.ends_with("-linux")) folders.push_back(home + "/" + name);
  for (const auto& folder : folders)
    for (const auto& name : host.list(folder)) {
      if (!name.starts_with("ascend_") || !name.ends_with("_install.info")) continue;
      const auto version = value_of(host.read(folder + "/" + name, 65536).value_or(""), "version", '=');
      if (!version || version->empty()) continue;
      const bool operators = name.find("ops") != std::string::npos || name.find("kernels") != std::string::npos;
      if (operators && cann.operators.empty()) cann.operators = *version;
      if (!cann.version.empty() && name != "ascend_toolkit_install.info") continue;
      cann.version = *version;
      cann.version_file = folder + "/" + name;
    }
}

std::string driver_folder(const HostView& host) {
  const auto told = value_of(host.read("/etc/ascend_install.info", 65536).value_or(""), "Driver_Install_Path_Param", '=');
  return (told && told->starts_with("/") ? *told : "/usr/local/Ascend") + "/driver";
}

}  // namespace

CannFacts cann_facts(const HostView& host) {
  CannFacts out;
  for (const char* variable : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"})
    if (out.home.empty()) out.home = host.variable(variable);
  out.from_environment = !out.home.empty();
  for (const auto& place : cann_places(host))
    if (out.home.empty() && host.is_folder(place)) out.home = place;
  if (out.home.empty()) return out;
  while (out.home.size() > 1 && out.home.back() == '/') out.home.pop_back();
  read_cann_version(host, out);
  const auto above = out.home.substr(0, out.home.rfind('/'));
  for (const auto& script : {out.home + "/set_env.sh", above + "/set_env.sh"})
    if (out.set_env.empty() && host.exists(script)) out.set_env = script;
  return out;
}

AscendFacts ascend_facts(const HostView& host) {
  AscendFacts out;
  for (const auto& name : host.list("/dev"))
    if (const auto number = name.starts_with("davinci") ? whole_number(name.substr(7)) : std::nullopt; number && *number < 1024)
      out.nodes.push_back(static_cast<int>(*number));
  std::sort(out.nodes.begin(), out.nodes.end());
  out.pci = pci_devices(host, "0x19e5", {"0x12"});
  out.driver = driver_folder(host);
  const auto version = host.read(out.driver + "/version.info", 65536).value_or("");
  out.driver_version = value_of(version, "Version", '=').value_or(value_of(version, "package_version", '=').value_or(""));
  out.cann = cann_facts(host);
  if (!out.device()) return out;
  out.smi_result = host.run({"npu-smi", "info"});
  for (const char* place : {"/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi"})
    if (out.smi_result.end == CommandResult::End::NotFound) out.smi_result = host.run({place, "info"});
  if (out.smi_result.ok()) out.smi = parse_npu_smi(out.smi_result.output);
  return out;
}

std::optional<AscendChipFacts> chip_facts(std::string name, bool physical_ids) {
  if (!name.starts_with("Ascend")) name = "Ascend" + name;
  if (name == "Ascend910" && physical_ids) name = "Ascend910_9391";
  for (const auto& row : chip_rows()) {
    const auto& prefix = row[0];
    const bool digit = name.size() > prefix.size() && std::isdigit(static_cast<unsigned char>(name[prefix.size()])) != 0;
    if (name.starts_with(prefix) && (row[1] == "no" || digit)) return chip_of_row(row);
  }
  return std::nullopt;
}

std::optional<AscendChipFacts> chip_here(const AscendFacts& ascend) {
  if (!ascend.smi.chips.empty()) return chip_facts(ascend.smi.chips[0].name, ascend.smi.physical_ids);
  for (const auto& row : chip_rows())
    if (!row[5].empty() && !ascend.pci.empty() && ascend.pci[0].ends_with("(" + row[5] + ")")) return chip_of_row(row);
  return std::nullopt;
}

std::vector<std::string> chip_families() {
  std::vector<std::string> out;
  for (const auto& row : chip_rows()) out.push_back(row[0] + " (" + row[2] + ")");
  return out;
}

std::vector<std::string> library_path(const HostView& host) {
  auto out = split(host.variable("LD_LIBRARY_PATH"), ':');
  std::erase(out, "");
  return out;
}

bool has_part(const std::string& path, std::string_view name) {
  const auto parts = split(path, '/');
  return std::find(parts.begin(), parts.end(), name) != parts.end();
}

}  // namespace npu_train::detail

namespace npu_train {
namespace {

// Reports the installed software of the version matrix, and versions that are too old for every guide.
Finding matrix_finding(const std::vector<MatrixRow>& rows) {
  std::vector<std::string> here, old;
  for (const auto& r : rows) {
    if (!r.here.empty()) here.push_back(r.component + " " + r.here);
    if (r.too_old()) old.push_back(r.component + " " + r.here + " (at least " + r.minimum_cann7 + " with CANN 7, " + r.minimum + " today)");
  }
  Finding f{detail::kAscend, "environment matrix", Verdict::Ok, join(here), "npu_tool doctor --versions prints the table"};
  if (old.empty()) return f;
  f.verdict = Verdict::Warn;
  f.finding = "too old: " + join(old);
  f.fix = "install the version that npu_tool doctor --versions recommends";
  return f;
}

}  // namespace

std::vector<Finding> check_ascend(const HostView& host, const ProcessFacts& process) {
  using detail::kAscend;
  const auto ascend = detail::ascend_facts(host);
  if (!ascend.device() && ascend.cann.home.empty())
    return {{kAscend, "Ascend NPU", Verdict::NotHere, "this machine has no Ascend NPU",
             "no /dev/davinci*, no driver in " + ascend.driver + ", no such PCI device, no CANN"}};
  if (!ascend.device())
    return {{kAscend, "Ascend NPU", Verdict::Warn, "CANN is installed, but no NPU is visible",
             ascend.cann.home + (ascend.cann.version.empty() ? "" : " (CANN " + ascend.cann.version + ")") +
                 "; no /dev/davinci*, no driver in " + ascend.driver,
             "this is correct on a machine that only compiles; in a container, map the devices and the driver: docker run "
             "--device=/dev/davinci0 --device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc -v "
             "/usr/local/Ascend/driver:/usr/local/Ascend/driver:ro -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi:ro"}};
  auto out = detail::driver_findings(host, ascend, process);
  for (auto& f : detail::cann_findings(host, ascend, process)) out.push_back(std::move(f));
  for (auto& f : detail::torch_npu_findings(host, ascend, process)) out.push_back(std::move(f));
  out.push_back(matrix_finding(environment_matrix(host, process)));
  return out;
}

}  // namespace npu_train
