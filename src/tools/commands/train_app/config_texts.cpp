#include "config_texts.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train::cli {
namespace {

using Row = std::vector<std::string>;

// Formats rows in columns, each as wide as its widest cell.
std::string in_columns(const std::vector<Row>& rows) {
  constexpr size_t kWidest = 24;  // longer cells shift only the rest of their own line
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], std::min(row[i].size(), kWidest));
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(2 + (row[i].size() < widths[i] ? widths[i] - row[i].size() : 0), ' ');
    }
    out += '\n';
  }
  return out;
}

template <class AnyRegistry>
std::string lines_of(const AnyRegistry& registry) {
  std::vector<Row> rows;
  for (const auto& name : registry.names()) rows.push_back({name, registry.doc(name)});
  return in_columns(rows);
}

std::string source_of(const ConfigNode* given) { return given == nullptr ? "default" : given->mark().str(); }

// Adds a row for each value below `whole`. `given`: the same node of the user's text; nullptr if it is not there.
void explain(const ConfigNode& whole, const ConfigNode* given, const std::string& path, std::vector<Row>& rows) {
  if (!whole.is_map() || whole.members().empty()) {
    rows.push_back({path, to_yaml_line(whole), source_of(given)});
    return;
  }
  for (const auto& member : whole.members()) {
    const auto key = path.empty() ? member.key : path + "." + member.key;
    const auto* of_member = given == nullptr ? nullptr : given->find(member.key);
    // In the short form `optimizer: adamw`, the scalar is the name of the part.
    if (of_member == nullptr && given != nullptr && given->is_scalar() && member.key == "name") of_member = given;
    explain(member.value, of_member, key, rows);
  }
}

void add_words(const std::vector<FieldInfo>& fields, const std::string& path, std::vector<std::string>& out) {
  for (const auto& field : fields) {
    if (field.type == "section")
      add_words(field.children, path + field.name + ".", out);
    else
      out.push_back(path + field.name + (field.type == "part" ? "." : "="));
  }
}

}  // namespace

const char* const kListedParts = "models, datasets, transforms, collates, tasks, metrics, optimizers, schedulers, callbacks, loggers";

std::string listed_parts(const std::string& kind, const Parts& parts) {
  if (kind == "models") return lines_of(parts.models);
  if (kind == "datasets") return lines_of(parts.datasets);
  if (kind == "transforms") return lines_of(parts.transforms);
  if (kind == "collates") return lines_of(parts.collates);
  if (kind == "tasks") return lines_of(parts.tasks);
  if (kind == "metrics") return lines_of(parts.metrics);
  if (kind == "optimizers") return lines_of(parts.optimizers);
  if (kind == "schedulers") return lines_of(parts.schedules);
  if (kind == "callbacks") return lines_of(parts.callbacks);
  if (kind == "loggers") return lines_of(parts.loggers);
  throw Error(ErrorKind::Usage, "--list", std::string("'") + kind + "' is not a kind of part; allowed: " + kListedParts);
}

std::string explained_config(const std::string& file, const std::vector<std::string>& overrides, const Parts& parts) {
  auto given = load_yaml(file);
  for (const auto& text : overrides) apply_override(given, text);
  const auto whole = resolved(bind_config(given, parts), parts);
  given = with_present_names(std::move(given));
  std::vector<Row> rows;
  explain(whole, &given, "", rows);
  return in_columns(rows);
}

std::vector<std::string> override_words(const Parts& parts) {
  std::vector<std::string> out;
  add_words(config_fields(parts), "", out);
  return out;
}

}  // namespace npu_train::cli
