// Scans settings and lists of packages: YAML, JSON, requirements, pyproject.toml, conda environments.
#include <algorithm>

#include "npu_train/core/message_text.hpp"
#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {
namespace {

bool is_package(char c) { return is_name_char(c) || c == '-' || c == '.'; }

// Calls fn(line, offset) for each line without its end.
template <class Fn>
void for_each_line(std::string_view text, Fn&& fn) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.size(), text.find('\n', begin));
    fn(text.substr(begin, end - begin), begin);
    begin = end + 1;
  }
}

// Calls fn(body, offset) for each quoted text of a line, up to a comment.
template <class Fn>
void for_each_quoted(std::string_view line, Fn&& fn) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#') return;
    if (line[i] != '"' && line[i] != '\'') continue;
    const size_t close = line.find(line[i], i + 1);
    if (close == std::string_view::npos) return;
    fn(line.substr(i + 1, close - i - 1), i + 1);
    i = close;
  }
}

uint32_t offset_of(std::string_view part, std::string_view whole) { return static_cast<uint32_t>(part.data() - whole.data()); }

std::string_view without_quotes(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  return text;
}

std::string_view without_comment(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return line.substr(0, i);
  return line;
}

// Returns the value in a line of YAML, which follows "key: " or "- ".
std::string_view yaml_value(std::string_view line) {
  auto rest = trimmed_view(without_comment(line));
  while (rest.starts_with("- ")) rest = trimmed_view(rest.substr(2));
  for (size_t i = 0; i + 1 < rest.size(); ++i)
    if (rest[i] == ':' && rest[i + 1] == ' ') return trimmed_view(rest.substr(i + 1));
  return rest;
}

}  // namespace

void scan_requirement(FileScan& scan, std::string_view line, uint32_t at) {
  const auto& packages = scan.facts().table("package");
  auto rest = trimmed_view(line);
  if (const auto index = rest.find("/whl/cu"); index != std::string_view::npos)
    scan.add(*packages.exact("whl/cu"), at + offset_of(rest, line), static_cast<uint32_t>(rest.size()));
  std::string_view name;
  const auto url = rest.find("://");
  if (rest.starts_with('-') && !rest.starts_with("-e ")) return;
  if (url != std::string_view::npos && rest.find(" @") == std::string_view::npos) {
    // the name is the last part of the path, as in git+https://github.com/NVIDIA/apex.git@23.05#egg=apex
    const auto stop = rest.find_first_of("#? ", url);
    name = rest.substr(url + 3, stop == std::string_view::npos ? stop : stop - url - 3);
    name = name.substr(0, name.find(".git@"));
    name = name.substr(name.rfind('/') + 1);
    name = name.substr(0, name.find('@'));
    if (name.ends_with(".git")) name.remove_suffix(4);
  } else {
    if (rest.starts_with("-e ")) rest = trimmed_view(rest.substr(3));
    name = rest.substr(0, end_of_run(rest, 0, is_package));
  }
  if (name.empty()) return;
  const auto begin = at + offset_of(name, line);
  if (const auto* library = scan.facts().by_package(name)) scan.add(*library, begin, static_cast<uint32_t>(name.size()));
  const bool cuda_build = rest.find("+cu1") != std::string_view::npos;
  if (cuda_build && name.starts_with("torch"))
    scan.add(*packages.exact("torch"), begin, static_cast<uint32_t>(rest.size() - (name.data() - rest.data())));
}

void scan_requirements(FileScan& scan) {
  for_each_line(scan.text(),
                [&](std::string_view line, size_t at) { scan_requirement(scan, without_comment(line), static_cast<uint32_t>(at)); });
}

void scan_toml(FileScan& scan) {
  bool table = false;  // in [tool.poetry.dependencies], where keys name packages or lists of packages
  bool list = false;   // inside of dependencies = [ ... ]
  bool cfg = false;    // after install_requires = in setup.cfg, where each line is a package
  for_each_line(scan.text(), [&](std::string_view line, size_t at) {
    const auto content = trimmed_view(without_comment(line));
    if (content.starts_with('[') && !list) {
      table = content.find("dependenc") != std::string_view::npos || content == "[packages]" || content == "[dev-packages]";
      list = cfg = false;
      return;
    }
    const auto equal = content.find('=');
    const bool indented = !line.empty() && (line[0] == ' ' || line[0] == '\t');
    if (cfg && indented) return scan_requirement(scan, content, static_cast<uint32_t>(at) + offset_of(content, line));
    cfg = false;
    if (!list && equal != std::string_view::npos) {
      const auto key = without_quotes(trimmed_view(content.substr(0, equal)));
      const auto value = trimmed_view(content.substr(equal + 1));
      const bool packages = key == "dependencies" || key.find("require") != std::string_view::npos || table;
      cfg = packages && value.empty();
      if (table && !value.starts_with('[')) scan_requirement(scan, key, static_cast<uint32_t>(at) + offset_of(key, line));
      list = packages && value.starts_with('[');
    }
    if (!list) return;
    for_each_quoted(line, [&](std::string_view body, size_t begin) { scan_requirement(scan, body, static_cast<uint32_t>(at + begin)); });
    if (content.ends_with(']')) list = false;
  });
}

void scan_conda(FileScan& scan) {
  for_each_line(scan.text(), [&](std::string_view line, size_t at) {
    auto item = trimmed_view(without_comment(line));
    if (!item.starts_with("- ")) return;
    item = without_quotes(trimmed_view(item.substr(2)));
    if (const auto channel = item.find("::"); channel != std::string_view::npos) item = item.substr(channel + 2);
    scan_requirement(scan, item, static_cast<uint32_t>(at) + offset_of(item, line));
  });
}

void scan_yaml(FileScan& scan) {
  for_each_line(scan.text(), [&](std::string_view line, size_t at) {
    const auto value = yaml_value(line);
    const auto place = [&](std::string_view part) { return static_cast<uint32_t>(at) + offset_of(part, line); };
    const auto whole = without_quotes(value);
    // A key may be the name of a variable: "CUDA_VISIBLE_DEVICES: 0,1".
    auto key = trimmed_view(without_comment(line));
    while (key.starts_with("- ")) key = trimmed_view(key.substr(2));
    key = key.substr(0, key.find_first_of(":= "));
    if (!key.empty() && scan.add_environment(key, place(key))) return;
    if (const auto* row = scan.facts().table("yaml.pair").exact(std::string(key) + ": " + std::string(whole)))
      return scan.add(*row, place(key), static_cast<uint32_t>(whole.data() + whole.size() - key.data()));
    if (whole.empty() || scan.add_environment(whole, place(whole))) return;
    if (value.ends_with(':')) return;  // the value of the key begins on the next line
    if (scan.add_device_text(whole, place(whole))) return;
    if (const auto* row = scan.facts().table("shell").find(whole)) return scan.add(*row, place(whole), static_cast<uint32_t>(whole.size()));
    if (value.starts_with('[') || value.starts_with('{'))
      for_each_quoted(
          value, [&](std::string_view body, size_t begin) { scan.add_device_text(body, place(value) + static_cast<uint32_t>(begin)); });
  });
}

void scan_json(FileScan& scan) {
  const auto text = scan.text();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '"') continue;
    const size_t end = closing_mark(text, i + 1, '"', /*escapes=*/true, /*lines=*/false);
    const auto body = text.substr(i + 1, end - i - 1);
    const auto behind = text.find_first_not_of(" \t\r\n", std::min(text.size(), end + 1));
    const bool key = behind != std::string_view::npos && text[behind] == ':';
    if (!scan.add_environment(body, static_cast<uint32_t>(i + 1)) && !key) scan.add_device_text(body, static_cast<uint32_t>(i + 1));
    i = end;
  }
}

}  // namespace npu_train::detail::scan
