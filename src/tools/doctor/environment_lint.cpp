#include "npu_train/tools/doctor/environment_lint.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "tools/doctor/facts/environment.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr const char* kEnvironment = "environment";

bool is_ascend_variable(std::string_view name) {
  for (const char* start : {"ASCEND_", "HCCL_", "ACL_", "INF_NAN_", "TORCH_HCCL_", "TORCH_NPU_", "PYTORCH_NPU_", "NPU_ASD_", "P2P_HCCL_"})
    if (name.starts_with(start)) return true;
  return name == "PYTORCH_NO_NPU_MEMORY_CACHING" || name == "RANK_TABLE_FILE" || name == "STREAMS_PER_DEVICE" ||
         name == "TASK_QUEUE_ENABLE";
}

struct Range {
  int64_t from, to;
};

// Parses "120..7200", "0..", "1..".
Range range_of(const std::string& allowed) {
  const auto dots = allowed.find("..");
  return {detail::whole_number(allowed.substr(0, dots)).value_or(INT64_MIN),
          dots == std::string::npos ? INT64_MAX : detail::whole_number(allowed.substr(dots + 2)).value_or(INT64_MAX)};
}

bool has_choice(const std::string& choices, const std::string& value) {
  const auto all = detail::split(choices, '|');
  return !choices.empty() && std::find(all.begin(), all.end(), value) != all.end();
}

// Checks a list of devices: ascending numbers of existing NPUs, separated by commas. Returns "" if it is valid.
std::string wrong_devices(const HostView& host, const std::string& value) {
  int64_t before = -1;
  for (const auto& part : detail::split(value, ',')) {
    const auto number = part.find_first_of(" \t") == std::string::npos ? detail::whole_number(part) : std::nullopt;
    if (!number || *number < 0) return "'" + part + "' is not a number; allowed: numbers separated by commas without spaces, as in 0,1,2";
    if (*number <= before) return "the numbers must be in ascending order, as in 0,1,2; reading stops at " + part;
    before = *number;
  }
  int64_t nodes = 0;
  for (const auto& name : host.list("/dev"))
    if (name.starts_with("davinci") && detail::whole_number(name.substr(7))) ++nodes;
  // the numbers are logical: 0 to count - 1, whatever the names of the nodes
  return nodes > 0 && before >= nodes
             ? "there is no NPU " + std::to_string(before) + "; the number of NPUs on this machine is " + std::to_string(nodes)
             : "";
}

struct AllocKey {
  double from, to;  // range of a number; from > to: no range is checked
};

const std::map<std::string, AllocKey>& alloc_keys() {
  static const AllocKey any{1, 0};
  static const std::map<std::string, AllocKey> keys = {{"max_split_size_mb", {20, 1e9}},
                                                       {"garbage_collection_threshold", {0, 1}},
                                                       {"expandable_segments", any},
                                                       {"base_addr_aligned_kb", {0, 16}},
                                                       {"page_size", any},
                                                       {"segment_size_mb", {20, 512}},
                                                       {"large_segment_size_mb", {10, 1e9}},
                                                       {"roundup_power2_divisions", any},
                                                       {"multi_stream_lazy_reclaim", any},
                                                       {"per_process_memory_fraction", {0, 1}},
                                                       {"throw_on_npumalloc_oom", any}};
  return keys;
}

// Checks a text such as "expandable_segments:True,max_split_size_mb:128". Returns "" if it is valid.
std::string wrong_alloc(const std::string& text) {
  std::string flat;  // `text` with ';' for ',' in brackets
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    flat += depth > 0 && c == ',' ? ';' : c;
  }
  for (const auto& pair : detail::split(flat, ',')) {
    const auto colon = pair.find(':');
    const auto key = detail::trimmed(pair.substr(0, colon));
    if (colon == std::string::npos) return "'" + key + "' has no value; allowed: key:value,key:value";
    const auto value = detail::trimmed(pair.substr(colon + 1));
    if (key.starts_with("pinned_")) continue;
    const auto known = alloc_keys().find(key);
    if (known == alloc_keys().end()) {
      std::vector<std::string> names;
      for (const auto& [name, range] : alloc_keys()) names.push_back(name);
      const auto near = nearest_name(key, names);
      return "'" + key + "' is unknown" + (near.empty() ? "" : "; did you mean " + near + "?");
    }
    if (key == "expandable_segments" && value != "True" && value != "False")
      return "expandable_segments is '" + value + "'; allowed: True, False";
    const auto [from, to] = known->second;
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool numeric = error == std::errc() && end == value.data() + value.size();
    if (from <= to && (!numeric || number < from || number > to))
      return key + " is '" + value + "'; allowed: " + shortest(from) + " to " + shortest(to);
  }
  return "";
}

// Returns why the value is not allowed; "" if it is allowed.
std::string wrong_value(const HostView& host, const KnownVariable& v, const std::string& value) {
  if (v.kind == "choice") return has_choice(v.allowed, value) ? "" : "'" + value + "' is not one of " + join(detail::split(v.allowed, '|'));
  if (v.kind == "int") {
    const auto number = detail::whole_number(value);
    const auto [from, to] = range_of(v.allowed);
    const auto most = to == INT64_MAX ? std::string(" or more") : " to " + std::to_string(to);
    return number && *number >= from && *number <= to ? "" : "'" + value + "' is not an integer of " + std::to_string(from) + most;
  }
  if (v.kind == "folder") return value.starts_with("/") && !host.is_folder(value) ? "the folder " + value + " does not exist" : "";
  if (v.kind == "file") return host.read(value, 1) ? "" : value + " is not a file that this user can read";
  if (v.kind == "devices") return wrong_devices(host, value);
  if (v.kind == "alloc") return wrong_alloc(value);
  return "";
}

std::string setting_of(const HostView& host, const std::string& name) { return name + "=" + detail::shortened(host.variable(name)); }

// Like setting_of(), but shows the default if the variable is not set.
std::string shown_or(const HostView& host, const std::string& name, const std::string& otherwise) {
  return host.variable(name).empty() ? name + " is not set" + (otherwise.empty() ? "" : " (default: " + otherwise + ")")
                                     : setting_of(host, name);
}

void lint_value(const HostView& host, const KnownVariable& v, bool ascend, std::vector<Finding>& out) {
  const auto value = host.variable(v.name);
  if (value.empty()) return;  // an empty variable counts as not set, except CUDA_VISIBLE_DEVICES, which the CUDA checks judge
  const auto wrong = wrong_value(host, v, value);
  if (!wrong.empty()) {
    const bool stops = v.wrong == "fail" && (ascend || !is_ascend_variable(v.name));
    out.push_back({kEnvironment, v.name, stops ? Verdict::Fail : Verdict::Warn, wrong, setting_of(host, v.name) + " (" + v.says + ")",
                   "unset " + v.name + (v.fallback.empty() ? "" : " (default: " + v.fallback + ")") + ", or set an allowed value"});
  } else if (has_choice(v.harmful, value)) {
    out.push_back(
        {kEnvironment, v.name, Verdict::Warn, v.says, setting_of(host, v.name),
         "unset " + v.name + (v.fallback.empty() ? "" : " (default: " + v.fallback + ")") + " unless you are debugging an error"});
  } else if (!v.instead.empty()) {
    out.push_back({kEnvironment, v.name, Verdict::Warn, "it was replaced by " + v.instead, setting_of(host, v.name),
                   "set " + v.instead + " instead"});
  }
}

int64_t number_or(const HostView& host, const std::string& name, int64_t otherwise) {
  return host.variable(name).empty() ? otherwise : detail::whole_number(host.variable(name)).value_or(otherwise);
}

// Looks for pairs of variables that contradict each other.
void lint_pairs(const HostView& host, bool ascend, std::vector<Finding>& out) {
  const auto fails = ascend ? Verdict::Fail : Verdict::Warn;
  const auto is_set = [&](const char* name) { return !host.variable(name).empty(); };
  const auto add = [&](const std::string& name, Verdict verdict, const std::string& finding, const std::string& evidence,
                       const std::string& fix) {
    out.push_back({kEnvironment, name, verdict, finding, evidence, fix});
  };
  if (is_set("PYTORCH_NPU_ALLOC_CONF") && is_set("PYTORCH_ALLOC_CONF"))
    add("PYTORCH_ALLOC_CONF", fails, "torch_npu refuses to start if PYTORCH_NPU_ALLOC_CONF is also set",
        setting_of(host, "PYTORCH_NPU_ALLOC_CONF") + ", " + setting_of(host, "PYTORCH_ALLOC_CONF"), "unset PYTORCH_ALLOC_CONF");
  const auto event = number_or(host, "HCCL_EVENT_TIMEOUT", 1868), exec = number_or(host, "HCCL_EXEC_TIMEOUT", 1836);
  if ((is_set("HCCL_EVENT_TIMEOUT") || is_set("HCCL_EXEC_TIMEOUT")) && event != 0 && event <= exec)
    add("HCCL timeouts", Verdict::Warn, "events time out before collectives, so the error message names the wrong one",
        shown_or(host, "HCCL_EVENT_TIMEOUT", std::to_string(event)) + ", " + shown_or(host, "HCCL_EXEC_TIMEOUT", std::to_string(exec)),
        "set HCCL_EVENT_TIMEOUT=" + std::to_string(exec + 32));
  if (is_set("NPU_TRAIN_SIM_CANN"))
    add("NPU_TRAIN_SIM_CANN", is_set("ASCEND_HOME_PATH") ? Verdict::Fail : Verdict::Warn,
        is_set("ASCEND_HOME_PATH") ? "it selects the simulated CANN, and ASCEND_HOME_PATH another one, so device npu is refused"
                                   : "the CANN of device npu is simulated on the host: no NPU computes, and times are those of the host",
        setting_of(host, "NPU_TRAIN_SIM_CANN") + ", " + shown_or(host, "ASCEND_HOME_PATH", ""), "unset NPU_TRAIN_SIM_CANN to use an NPU");
  if (host.variable("HCCL_WHITELIST_DISABLE") == "0" && !is_set("HCCL_WHITELIST_FILE"))
    add("HCCL_WHITELIST_FILE", fails, "the list of hosts is enabled, but no file is set", setting_of(host, "HCCL_WHITELIST_DISABLE"),
        "set HCCL_WHITELIST_DISABLE=1, or set HCCL_WHITELIST_FILE to the list");
  if (host.variable("HCCL_INTRA_ROCE_ENABLE") == "1" && host.variable("HCCL_INTRA_PCIE_ENABLE") == "1")
    add("HCCL_INTRA_ROCE_ENABLE", Verdict::Warn, "both connections between the NPUs of one machine are enabled",
        setting_of(host, "HCCL_INTRA_ROCE_ENABLE") + ", " + setting_of(host, "HCCL_INTRA_PCIE_ENABLE"), "set one of them to 0");
  std::error_code none;
  if (is_set("RANK_TABLE_FILE") && std::filesystem::is_symlink(host.path(host.variable("RANK_TABLE_FILE")), none))
    add("RANK_TABLE_FILE", fails, "it is a link, which HCCL rejects", setting_of(host, "RANK_TABLE_FILE"), "set it to the file itself");
  const auto world = number_or(host, "WORLD_SIZE", 1), rank = number_or(host, "RANK", 0), local = number_or(host, "LOCAL_RANK", 0);
  if (rank >= world || local >= world)
    add("RANK", Verdict::Fail, "the rank is not below the number of processes; ranks begin at 0",
        shown_or(host, "RANK", "") + ", " + shown_or(host, "LOCAL_RANK", "") + ", " + shown_or(host, "WORLD_SIZE", "1"),
        "have the launcher set them, or unset all three for a single process");
  if (world > 1 && !is_set("MASTER_ADDR") && !is_set("RANK_TABLE_FILE"))
    add("MASTER_ADDR", Verdict::Fail, "several processes are configured, but the address of rank 0 is missing",
        "WORLD_SIZE=" + std::to_string(world), "set MASTER_ADDR and MASTER_PORT to the host of rank 0 and a free port there");
}

}  // namespace

const std::vector<KnownVariable>& known_variables() {
  static const auto known = [] {
    std::vector<KnownVariable> out;
    for (const auto& row : detail::facts_texts(facts::environment, "environment.tsv", 8))
      out.push_back({row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]});
    return out;
  }();
  return known;
}

std::vector<Finding> lint_environment(const HostView& host) {
  bool ascend = false;
  for (const auto& name : host.list("/dev")) ascend = ascend || name.starts_with("davinci");
  std::vector<Finding> out;
  std::vector<std::string> names;
  for (const auto& v : known_variables()) {
    if (host.has_variable(v.name)) names.push_back(v.name);
    lint_value(host, v, ascend, out);
  }
  lint_pairs(host, ascend, out);
  if (out.empty())
    out.push_back({kEnvironment, "variables", Verdict::Ok,
                   names.empty()       ? "no variable that affects training is set"
                   : names.size() == 1 ? "1 is set, with an allowed value"
                                       : std::to_string(names.size()) + " are set, all with allowed values",
                   names.empty() ? std::to_string(known_variables().size()) + " variables were checked" : detail::first_few(names, 20)});
  return out;
}

std::vector<Finding> check_environment(const HostView& host) { return lint_environment(host); }

}  // namespace npu_train
