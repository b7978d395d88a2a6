#include "tools/scan/python_file.hpp"

#include <algorithm>

#include "npu_train/core/read_text.hpp"

namespace npu_train::detail::scan {

constexpr size_t kMostStars = 16;  // star imports, in each of which every name is looked up
constexpr size_t kLongestPythonName = 400;

PythonFile::PythonFile(std::string_view text) : Tokens(python_tokens(text)) {
  for (size_t i = 0; i < size(); ++i) {
    const size_t first = i;
    while (!is_line_end(i)) ++i;
    if (i == first) continue;
    const auto line = text.substr(0, begin(first)).rfind('\n');
    lines_.push_back({first, i, begin(first) - (line == std::string_view::npos ? start_of_text(text) : line + 1)});
  }
  for (size_t i = 0; i < size();) {
    const bool starts = i == 0 || is_line_end(i - 1) || is(i - 1, ";") || is(i - 1, ":");
    i = starts && (is(i, "import") || is(i, "from")) ? read_statement(i) : i + 1;
  }
  for (const auto& statement : imports_) {
    const auto prefix = statement.relative ? "." + statement.module + "." : statement.module + ".";
    if (statement.star && !statement.relative && stars_.size() < kMostStars) stars_.push_back(statement.module);
    for (const auto& name : statement.names) {
      if (!statement.from) modules_.insert(name.bound);
      targets_[name.bound] = statement.from ? prefix + name.name : name.renamed ? name.name : name.bound;
    }
  }
}

// Reads "a.b.c" at `i` and returns the next token. If the name is too long for any table, keeps only its start, since it is copied for
// every use.
size_t PythonFile::read_dotted(size_t i, std::string& name, size_t& last) const {
  while (is_name(i)) {
    if (name.size() < kLongestPythonName) name += word(i).substr(0, kLongestPythonName);
    last = i++;
    if (!is(i, ".") || !is_name(i + 1)) break;
    if (name.size() < kLongestPythonName) name += '.';
    ++i;
  }
  return i;
}

size_t PythonFile::read_statement(size_t i) {
  ImportStatement statement;
  statement.from = is(i, "from");
  statement.begin = i++;
  if (statement.from) {
    for (; is(i, "."); ++i) statement.relative = true;
    statement.module_first = i;
    if (!is(i, "import")) i = read_dotted(i, statement.module, statement.module_last);
    if (!is(i, "import")) return i;  // `yield from x`, or malformed code
    ++i;
  }
  i = read_names(i, statement);
  statement.end = i;
  if (!statement.names.empty() || statement.star) imports_.push_back(std::move(statement));
  return i;
}

size_t PythonFile::read_names(size_t i, ImportStatement& statement) {
  const bool parens = is(i, "(");
  if (parens) ++i;
  if (is(i, "*")) {
    statement.star = true;
    return i + 1;
  }
  while (is_name(i)) {
    ImportedName name;
    name.first = i;
    i = read_dotted(i, name.name, name.last);
    name.bound = name.name.substr(0, name.name.find('.'));
    if (is(i, "as") && is_name(i + 1)) {
      name.renamed = true;
      name.bound = word(i + 1);  // not truncated: it is looked up exactly
      i += 2;
    }
    statement.names.push_back(std::move(name));
    if (!is(i, ",")) break;
    ++i;
  }
  return parens && is(i, ")") ? i + 1 : i;
}

const std::string* PythonFile::target(std::string_view name) const {
  const auto found = targets_.find(name);
  return found == targets_.end() ? nullptr : &found->second;
}

bool PythonFile::imports_module(std::string_view module) const {
  return std::any_of(imports_.begin(), imports_.end(), [&](const ImportStatement& s) {
    if (s.relative) return false;
    return s.from ? lies_in(s.module, module)
                  : std::any_of(s.names.begin(), s.names.end(), [&](const auto& n) { return lies_in(n.name, module); });
  });
}

size_t PythonFile::line_of(size_t token) const {
  const auto after = std::upper_bound(lines_.begin(), lines_.end(), token, [](size_t t, const PythonLine& line) { return t < line.first; });
  return static_cast<size_t>(after - lines_.begin()) - 1;
}

std::string_view PythonFile::name_of_function(const PythonLine& line) const {
  const size_t def = line.first + (begins(line, "async") ? 1 : 0);
  return is(def, "def") && def + 1 < line.end ? word(def + 1) : std::string_view();
}

size_t PythonFile::end_of_block(size_t k, bool branches) const {
  const auto goes_on = [&](const PythonLine& line) {
    if (line.indent > lines_[k].indent) return true;
    return branches && line.indent == lines_[k].indent &&
           (begins(line, "elif") || begins(line, "else") || begins(line, "except") || begins(line, "finally"));
  };
  size_t end = k + 1;
  while (end < lines_.size() && goes_on(lines_[end])) ++end;
  return end;
}

}  // namespace npu_train::detail::scan
