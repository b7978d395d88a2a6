// Decides where a rewrite inserts `import torch_npu`.
#include <algorithm>

#include "tools/scan/file_scan.hpp"
#include "tools/scan/python_names.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr int kMostImports = 64;  // imports of torch whose surrounding lines are examined

class NpuImport {
 public:
  NpuImport(FileScan& scan, const std::vector<Token>& tokens, const PythonNames& names)
      : scan_(scan), text_(scan.text()), tokens_(tokens), names_(names) {}

  void run() {
    if (!scan_.has_device_edits() || names_.imports_module("torch_npu")) return;
    const ImportStatement* inner = nullptr;  // the first import of torch in a function that contains every edit
    int looked_at = 0;
    for (const auto& statement : names_.imports()) {
      if (!imports_torch(statement)) continue;
      if (++looked_at > kMostImports) break;
      const auto around = blocks_around(statement.begin);
      if (!around.begins_statement || around.type_checking) continue;
      if (around.function) {
        if (inner == nullptr && holds_all_edits(around.innermost)) inner = &statement;
        continue;
      }
      if (!becomes_torch_npu(statement)) import_behind(statement);
      return;
    }
    if (looked_at == 0) return;
    if (inner == nullptr) return import_at_the_top();
    if (!becomes_torch_npu(*inner)) import_behind(*inner);
  }

 private:
  bool is(size_t i, std::string_view word) const { return i < tokens_.size() && tokens_[i].in(text_) == word; }
  bool is_kind(size_t i, TokenKind kind) const { return i < tokens_.size() && tokens_[i].kind == kind; }
  uint32_t begin(size_t i) const { return tokens_[i].begin; }
  uint32_t span(size_t first, size_t last) const { return tokens_[last].end() - tokens_[first].begin; }

  static bool imports_torch(const ImportStatement& statement) {
    if (statement.from) return !statement.relative && lies_in(statement.module, "torch");
    return std::any_of(statement.names.begin(), statement.names.end(), [](const auto& n) { return lies_in(n.name, "torch"); });
  }

  static bool becomes_torch_npu(const ImportStatement& statement) {
    const bool only_cuda =
        statement.from && statement.names.size() == 1 && statement.module + "." + statement.names[0].name == "torch.cuda";
    return only_cuda || (statement.from && lies_in(statement.module, "torch.cuda"));
  }

  struct Blocks {
    bool begins_statement = false;  // at the start of a line or after ';', and not after the colon of `if x: import torch`
    bool function = false, type_checking = false;
    size_t innermost = 0;  // first token of the innermost function or class
  };

  size_t line_start(size_t token) const {
    while (token > 0 && !is_kind(token - 1, TokenKind::LineEnd)) --token;
    return token;
  }

  size_t indent_of(size_t token) const {
    const auto at = text_.find_last_of('\n', begin(token) == 0 ? 0 : begin(token) - 1);
    return begin(token) - (at == std::string_view::npos || begin(token) == 0 ? 0 : at + 1);
  }

  // Examines the less indented lines above a token.
  Blocks blocks_around(size_t token) const {
    Blocks out;
    const size_t own = line_start(token);
    out.begins_statement = std::none_of(tokens_.begin() + static_cast<ptrdiff_t>(own), tokens_.begin() + static_cast<ptrdiff_t>(token),
                                        [&](const Token& t) { return t.in(text_) == ":"; });
    size_t indent = indent_of(own);
    for (size_t line = own; line > 0 && indent > 0;) {
      line = line_start(line - 1);
      if (is_kind(line, TokenKind::LineEnd) || indent_of(line) >= indent) continue;
      indent = indent_of(line);
      const bool function = is(line, "def") || is(line, "class") || (is(line, "async") && is(line + 1, "def"));
      if (function && !out.function) out.innermost = line;
      out.function = out.function || function;
      if (is(line, "if") || is(line, "elif"))
        for (size_t i = line; i < own && !is_kind(i, TokenKind::LineEnd); ++i)
          out.type_checking = out.type_checking || (is(i, "TYPE_CHECKING") && !is(i - 1, "not"));
    }
    return out;
  }

  // Whether all edits are in this function.
  bool holds_all_edits(size_t function) const {
    const auto indent = indent_of(function);
    size_t end = text_.size();
    for (size_t i = function; i + 1 < tokens_.size(); ++i)
      if (is_kind(i, TokenKind::LineEnd) && indent_of(i + 1) <= indent) {
        end = begin(i + 1);
        break;
      }
    return scan_.edits_lie_in(begin(function), static_cast<uint32_t>(end));
  }

  void add_import(size_t first, size_t last, size_t at, std::string text) {
    scan_.add({&scan_.facts().rule("npu-import"), "", ""}, begin(first), span(first, last),
              {{static_cast<uint32_t>(at), 0, std::move(text)}});
  }

  // Inserts after the statement that ends before token `end`: on a separate line or, if another statement follows on its line, between the
  // two.
  void import_after(size_t first, size_t end) {
    const size_t own = line_start(first);
    if (is(end, ";") && !is_kind(end + 1, TokenKind::LineEnd))
      return add_import(first, end - 1, tokens_[end - 1].end(), "; import torch_npu");
    size_t after = end;
    while (after < tokens_.size() && !is_kind(after, TokenKind::LineEnd)) ++after;
    if (after == tokens_.size()) return;
    size_t at = begin(after);
    const bool crlf = at > 0 && at < text_.size() && text_[at - 1] == '\r';
    if (crlf) --at;
    const auto indent = text_.substr(begin(own) - indent_of(own), indent_of(own));
    add_import(first, end - 1, at, (crlf ? "\r\n" : "\n") + std::string(blank(indent) ? indent : "") + "import torch_npu");
  }

  void import_behind(const ImportStatement& statement) { import_after(statement.begin, statement.end); }

  // Inserts after the documentation and imports from __future__, before all other code.
  void import_at_the_top() {
    size_t i = 0, begin_of_last = 0, end_of_last = 0;  // positions of the last statement that stays before it
    const auto& imports = names_.imports();
    auto next = imports.begin();  // in file order
    while (i < tokens_.size()) {
      if (is_kind(i, TokenKind::LineEnd) || is(i, ";")) {
        ++i;
        continue;
      }
      while (next != imports.end() && next->begin < i) ++next;
      const auto future = next != imports.end() && next->begin == i && next->module == "__future__" ? next : imports.end();
      const bool documentation = end_of_last == 0 && is_kind(i, TokenKind::Text) && (is_kind(i + 1, TokenKind::LineEnd) || is(i + 1, ";"));
      if (future == imports.end() && !documentation) break;
      begin_of_last = i;
      end_of_last = i = documentation ? i + 1 : future->end;
    }
    if (end_of_last > 0) return import_after(begin_of_last, end_of_last);
    if (i >= tokens_.size()) return;
    const auto line_end = text_.find('\n');
    const bool crlf = line_end != std::string_view::npos && line_end > 0 && text_[line_end - 1] == '\r';
    add_import(i, i, begin(i), crlf ? "import torch_npu\r\n" : "import torch_npu\n");
  }

  static bool blank(std::string_view text) { return text.find_first_not_of(" \t") == std::string_view::npos; }

  FileScan& scan_;
  std::string_view text_;
  const std::vector<Token>& tokens_;
  const PythonNames& names_;
};

}  // namespace

void import_torch_npu(FileScan& scan, const std::vector<Token>& tokens, const PythonNames& names) { NpuImport(scan, tokens, names).run(); }

}  // namespace npu_train::detail::scan
