#include "npu_train/tools/doctor/environment_matrix.hpp"

#include <algorithm>

#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/facts/matrix.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr const char* kMatrixVariables[] = {"ASCEND_HOME",       "ASCEND_HOME_PATH", "TOOLCHAIN_HOME", "ASCEND_OPP_PATH",
                                            "ASCEND_AICPU_PATH", "LD_LIBRARY_PATH",  "PYTHONPATH"};

// Returns the first version in the first line that a command prints: "Python 3.11.2", "cmake version 3.25.1", "12.2.0".
std::string printed_version(const HostView& host, const std::string& command) {
  const auto result = host.run ? host.run(detail::words(command)) : CommandResult();
  if (!result.ok()) return "";
  for (const auto& word : detail::words(detail::first_line(result.output)))
    if (Version::parse(word)) return word;
  return "";
}

std::string tool_path(const HostView& host, const std::string& cann, const std::string& name) {
  std::vector<std::string> folders;
  for (const auto& root : {cann, host.variable("TOOLCHAIN_HOME"), host.variable("ASCEND_HOME")}) {
    if (root.empty()) continue;
    for (const char* part : {"/bin", "/compiler/bin", "/tools/profiler/bin", "/compiler/ccec_compiler/bin"}) folders.push_back(root + part);
  }
  for (const char* system : {"/usr/local/bin", "/usr/bin"}) folders.emplace_back(system);
  for (const auto& folder : folders)
    if (host.exists(folder + "/" + name) && !host.is_folder(folder + "/" + name)) return folder + "/" + name;
  return "";
}

std::string found_here(const HostView& host, const ProcessFacts& process, const detail::CannFacts& cann, const std::string& component,
                       const std::string& how) {
  constexpr std::string_view kCommand = "command ";
  if (how.starts_with(kCommand)) return printed_version(host, how.substr(kCommand.size()));
  if (how == "torch" && !process.torch_loaded) return "";
  if (how == "torch") return process.torch_library.empty() ? process.torch_headers : process.torch_library;
  if (how == "torch_npu") return detail::torch_npu_here(host, process);
  if (how == "cann") return cann.version;
  if (how == "os") return detail::value_of(host.read("/etc/os-release").value_or(""), "PRETTY_NAME", '=').value_or("");
  return tool_path(host, cann.home, component);
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace

bool MatrixRow::too_old() const {
  const auto version = Version::parse(here), then = Version::parse(minimum_cann7), now = Version::parse(minimum);
  return version && then && now && *version < *then && *version < *now;
}

std::vector<MatrixRow> environment_matrix(const HostView& host, const ProcessFacts& process) {
  const auto cann = detail::cann_facts(host);
  std::vector<MatrixRow> out;
  for (const auto& row : detail::facts_texts(facts::matrix, "matrix.tsv", 7))
    out.push_back({row[0], found_here(host, process, cann, row[0], row[1]), row[2], row[3], row[4], row[5], row[6]});
  return out;
}

CardFacts card_facts(const HostView& host, const std::string& kind, int index) {
  CardFacts out;
  if (kind == "npu") {
    const auto ascend = detail::ascend_facts(host);
    out.cann = ascend.cann.version;
    if (!ascend.smi.chips.empty()) out.name = ascend.smi.chips[std::min<size_t>(index, ascend.smi.chips.size() - 1)].name;
  } else if (kind == "cuda" && host.run) {
    const auto result = host.run({"nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=" + std::to_string(index)});
    if (result.ok()) out.name = detail::first_line(result.output);
  }
  return out;
}

Report matrix_report(const std::vector<MatrixRow>& rows, const HostView& host) {
  const auto as_of = detail::facts_note(facts::matrix, "as of");
  Report out("Software for Ascend NPUs", Json::object({{"as_of", as_of}}));
  out.say("recommended versions, by the guides of CANN 7 (2023) and today (table of " + as_of + ")");
  ReportTable components, variables;
  const auto versions = [](const std::string& recommended, const std::string& minimum) {
    return Json::object({{"recommended", recommended}, {"minimum", minimum}});
  };
  for (const auto& r : rows)
    components.add({both("component", r.component), both("here", "installed", {r.here, or_dash(r.here)}),
                    data("cann7", versions(r.recommended_cann7, r.minimum_cann7)), data("today", versions(r.recommended, r.minimum)),
                    shown("CANN 7", or_dash(r.recommended_cann7)), shown("at least", or_dash(r.minimum_cann7)),
                    shown("today", or_dash(r.recommended)), shown("today at least", or_dash(r.minimum)), data("too_old", r.too_old()),
                    both("note", r.note)});
  out.table("components", std::move(components));
  auto values = Json::object();
  for (const char* name : kMatrixVariables) {
    values.set(name, host.variable(name));
    variables.add({shown("variable", name), shown("here", or_dash(host.variable(name)))});
  }
  out.data({{"variables", std::move(values)}});
  out.table("", std::move(variables));
  return out;
}

}  // namespace npu_train
