#include "tools/scan/python_names.hpp"

#include <algorithm>

namespace npu_train::detail::scan {

constexpr size_t kMostStars = 16;  // star imports, in each of which every name is looked up
constexpr size_t kLongestPythonName = 400;

PythonNames::PythonNames(std::string_view text, const std::vector<Token>& tokens) : text_(text), tokens_(tokens) {
  for (size_t i = 0; i < tokens_.size();) {
    const bool starts =
        i == 0 || tokens_[i - 1].kind == TokenKind::LineEnd || is(i - 1, TokenKind::Symbol, ";") || is(i - 1, TokenKind::Symbol, ":");
    i = starts && (is(i, TokenKind::Name, "import") || is(i, TokenKind::Name, "from")) ? read_statement(i) : i + 1;
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

bool PythonNames::is(size_t i, TokenKind kind, std::string_view word) const {
  return i < tokens_.size() && tokens_[i].kind == kind && tokens_[i].in(text_) == word;
}

// Reads "a.b.c" at `i` and returns the next token. Of a name that is too long for any table, keeps only the start, since it is copied for
// every use.
size_t PythonNames::read_dotted(size_t i, std::string& name, size_t& last) const {
  while (i < tokens_.size() && tokens_[i].kind == TokenKind::Name) {
    if (name.size() < kLongestPythonName) name += tokens_[i].in(text_).substr(0, kLongestPythonName);
    last = i++;
    if (!is(i, TokenKind::Symbol, ".") || i + 1 >= tokens_.size() || tokens_[i + 1].kind != TokenKind::Name) break;
    if (name.size() < kLongestPythonName) name += '.';
    ++i;
  }
  return i;
}

size_t PythonNames::read_statement(size_t i) {
  ImportStatement statement;
  statement.from = tokens_[i].in(text_) == "from";
  statement.begin = i;
  ++i;
  if (statement.from) {
    while (is(i, TokenKind::Symbol, ".")) {
      statement.relative = true;
      ++i;
    }
    statement.module_first = i;
    if (!is(i, TokenKind::Name, "import")) i = read_dotted(i, statement.module, statement.module_last);
    if (!is(i, TokenKind::Name, "import")) return i;  // `yield from x`, or malformed code
    ++i;
  }
  i = read_names(i, statement);
  statement.end = i;
  if (!statement.names.empty() || statement.star) imports_.push_back(std::move(statement));
  return i;
}

size_t PythonNames::read_names(size_t i, ImportStatement& statement) {
  const bool parens = is(i, TokenKind::Symbol, "(");
  if (parens) ++i;
  if (is(i, TokenKind::Symbol, "*")) {
    statement.star = true;
    return i + 1;
  }
  while (i < tokens_.size() && tokens_[i].kind == TokenKind::Name) {
    ImportedName name;
    name.first = i;
    i = read_dotted(i, name.name, name.last);
    name.bound = name.name.substr(0, name.name.find('.'));
    if (is(i, TokenKind::Name, "as") && i + 1 < tokens_.size() && tokens_[i + 1].kind == TokenKind::Name) {
      name.renamed = true;
      name.bound = tokens_[i + 1].in(text_);  // not truncated: it is looked up exactly
      i += 2;
    }
    statement.names.push_back(std::move(name));
    if (!is(i, TokenKind::Symbol, ",")) break;
    ++i;
  }
  return parens && is(i, TokenKind::Symbol, ")") ? i + 1 : i;
}

const std::string* PythonNames::target(std::string_view name) const {
  const auto found = targets_.find(name);
  return found == targets_.end() ? nullptr : &found->second;
}

bool PythonNames::imports_module(std::string_view module) const {
  return std::any_of(imports_.begin(), imports_.end(), [&](const ImportStatement& s) {
    if (s.relative) return false;
    return s.from ? lies_in(s.module, module)
                  : std::any_of(s.names.begin(), s.names.end(), [&](const auto& n) { return lies_in(n.name, module); });
  });
}

}  // namespace npu_train::detail::scan
