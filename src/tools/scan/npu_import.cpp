// Decides where a rewrite inserts `import torch_npu` and `import npu_distributed`.
#include <algorithm>
#include <utility>

#include "tools/scan/python_file.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr int kMostImports = 64;  // limit of imports of torch that are examined with the lines around them

class NpuImport {
 public:
  NpuImport(FileScan& scan, const PythonFile& file) : scan_(scan), file_(file), lines_(file.lines()) {}

  void run() {
    needs_npu_ = scan_.has_device_edits() && !file_.imports_module("torch_npu");
    needs_ranks_ = scan_.rank_edits_begin() != UINT32_MAX && !file_.imports_module(kRankModule);
    if (!needs_npu_ && !needs_ranks_) return;
    const ImportStatement* inner = nullptr;  // an import of torch that runs on loading, or in a function that contains every edit
    int looked_at = 0;
    for (const auto& statement : file_.imports()) {
      if (!imports_torch(statement)) continue;
      if (++looked_at > kMostImports) break;
      const auto around = blocks_around(statement.begin);
      if (!around.begins_statement || around.type_checking) continue;
      if (around.function) {
        if (inner == nullptr && holds_all_edits(around.innermost)) inner = &statement;
        continue;
      }
      inner = &statement;
      break;
    }
    if (looked_at == 0) needs_npu_ = false;
    const bool early = looked_at == 0 || (inner != nullptr && scan_.rank_edits_begin() < file_.begin(inner->begin));
    if (needs_ranks_ && early) {  // npu_distributed must be imported before its names are used
      const bool npu = std::exchange(needs_npu_, false);
      import_at_the_top();
      needs_npu_ = npu;
      needs_ranks_ = false;
    }
    if (looked_at == 0 || (!needs_npu_ && !needs_ranks_)) return;
    inner == nullptr ? import_at_the_top() : import_at(*inner);
  }

 private:
  void import_at(const ImportStatement& statement) {
    needs_npu_ = needs_npu_ && !becomes_torch_npu(statement);
    if (needs_npu_ || needs_ranks_) import_after(statement.begin, statement.end);
  }

  // Returns the needed imports, each with `before` and `after` around it.
  std::string needed_imports(const std::string& before, const std::string& after) const {
    std::string out;
    if (needs_npu_) out += before + "import torch_npu" + after;
    if (needs_ranks_) out += before + "import " + std::string(kRankModule) + after;
    return out;
  }

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
    bool begins_statement = true;  // the token is at the start of a line or after ';', and not after the colon of `if x: import torch`
    bool function = false, type_checking = false;
    size_t innermost = 0;  // line of the innermost function or class
  };

  // Examines the less indented lines above a token.
  Blocks blocks_around(size_t token) const {
    Blocks out;
    const size_t own = file_.line_of(token);
    for (size_t i = lines_[own].first; i < token; ++i) out.begins_statement &= !file_.is(i, ":");
    size_t indent = lines_[own].indent;
    for (size_t k = own; k > 0 && indent > 0;) {
      const auto& line = lines_[--k];
      if (line.indent >= indent) continue;
      indent = line.indent;
      const bool function = !file_.name_of_function(line).empty() || file_.begins(line, "class");
      if (function && !out.function) out.innermost = k;
      out.function |= function;
      if (file_.begins(line, "if") || file_.begins(line, "elif"))
        for (size_t i = line.first; i < line.end; ++i) out.type_checking |= file_.is(i, "TYPE_CHECKING") && !file_.is(i - 1, "not");
    }
    return out;
  }

  bool holds_all_edits(size_t function) const {
    const auto end = file_.end_of_block(function);
    return scan_.edits_lie_in(file_.begin(lines_[function].first), end < lines_.size() ? file_.begin(lines_[end].first) : UINT32_MAX);
  }

  void add_import(size_t first, size_t last, size_t at, std::string text) {
    scan_.add("npu-import", file_.begin(first), file_.span(first, last), {{static_cast<uint32_t>(at), 0, std::move(text)}});
  }

  // Inserts the imports after the statement that ends before token `end`: on a separate line or, if another statement follows on its line,
  // between the two.
  void import_after(size_t first, size_t end) {
    if (file_.is(end, ";") && !file_.is_line_end(end + 1))
      return add_import(first, end - 1, file_[end - 1].end(), needed_imports("; ", ""));
    const auto& line = lines_[file_.line_of(first)];
    const auto text = file_.text();
    size_t at = file_.begin(line.end);
    const bool crlf = at > 0 && at < text.size() && text[at - 1] == '\r';
    if (crlf) --at;
    const auto indent = text.substr(file_.begin(line.first) - line.indent, line.indent);
    add_import(first, end - 1, at, needed_imports((crlf ? "\r\n" : "\n") + std::string(indent), ""));
  }

  // Inserts the imports after the documentation and imports from __future__, before all other code.
  void import_at_the_top() {
    size_t i = 0, begin_of_last = 0, end_of_last = 0;  // positions of the last statement before the inserted imports
    const auto& imports = file_.imports();
    auto next = imports.begin();  // in file order
    while (i < file_.size()) {
      if (file_.is_line_end(i) || file_.is(i, ";")) {
        ++i;
        continue;
      }
      while (next != imports.end() && next->begin < i) ++next;
      const bool future = next != imports.end() && next->begin == i && next->module == "__future__";
      const bool documentation = end_of_last == 0 && file_.is_text(i) && (file_.is_line_end(i + 1) || file_.is(i + 1, ";"));
      if (!future && !documentation) break;
      begin_of_last = i;
      end_of_last = i = documentation ? i + 1 : next->end;
    }
    if (end_of_last > 0) return import_after(begin_of_last, end_of_last);
    if (i >= file_.size()) return;
    const auto line_end = file_.text().find('\n');
    const bool crlf = line_end != std::string_view::npos && line_end > 0 && file_.text()[line_end - 1] == '\r';
    add_import(i, i, file_.begin(i), needed_imports("", crlf ? "\r\n" : "\n"));
  }

  FileScan& scan_;
  const PythonFile& file_;
  const std::vector<PythonLine>& lines_;
  bool needs_npu_ = false, needs_ranks_ = false;
};

}  // namespace

void import_torch_npu(FileScan& scan, const PythonFile& file) { NpuImport(scan, file).run(); }

}  // namespace npu_train::detail::scan
