// A Python file: its tokens, its logical lines, and the names that its imports bind.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/scan/facts.hpp"
#include "tools/scan/file_scan.hpp"
#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {

// Whether a name is in a module: "torch.cuda.amp" and "torch.cuda" are in "torch.cuda", but "torch.cudart" is not.
inline bool lies_in(std::string_view name, std::string_view module) {
  return name == module || (name.starts_with(module) && name.size() > module.size() && name[module.size()] == '.');
}

struct ImportedName {
  std::string name;   // "torch.nn" in `import torch.nn as nn`; "nn" in `from torch import nn`
  std::string bound;  // the name in this file; "torch" for `import torch.nn`
  bool renamed = false;
  size_t first = 0, last = 0;  // tokens of `name`
};

/// `import a.b as c, d` or `from a.b import c as d, e`.
struct ImportStatement {
  bool from = false, star = false, relative = false;
  std::string module;                        // module of `from`
  size_t module_first = 0, module_last = 0;  // tokens of the module
  std::vector<ImportedName> names;
  size_t begin = 0, end = 0;  // tokens of the statement; `end` is after the last one
};

/// A logical line and its indentation.
struct PythonLine {
  size_t first = 0, end = 0;  // tokens, without the LineEnd
  size_t indent = 0;
};

class PythonFile : public Tokens {
 public:
  explicit PythonFile(std::string_view text);

  const std::vector<ImportStatement>& imports() const { return imports_; }
  /// Returns the full name that an import bound to `name`; nullptr if no import did.
  const std::string* target(std::string_view name) const;
  /// Whether an `import` statement bound `name`, so that it is a module and not an object.
  bool is_module(std::string_view name) const { return modules_.find(name) != modules_.end(); }
  /// Modules imported by `from MODULE import *`.
  const std::vector<std::string>& stars() const { return stars_; }
  /// Whether any import loads `module` or a part of it.
  bool imports_module(std::string_view module) const;

  /// Lines that are not empty.
  const std::vector<PythonLine>& lines() const { return lines_; }
  /// Returns the line of a token that is not a LineEnd.
  size_t line_of(size_t token) const;
  bool begins(const PythonLine& line, std::string_view word) const { return is(line.first, word); }
  /// Returns "f" for `def f(`; otherwise an empty text.
  std::string_view name_of_function(const PythonLine& line) const;
  /// Returns the line after the block that begins at line `k`; `branches`: the block includes its elif, else, except and finally.
  size_t end_of_block(size_t k, bool branches = false) const;

 private:
  size_t read_statement(size_t i);
  size_t read_dotted(size_t i, std::string& name, size_t& last) const;
  size_t read_names(size_t i, ImportStatement& statement);

  std::vector<PythonLine> lines_;
  std::vector<ImportStatement> imports_;
  TextMap<std::string> targets_;
  std::set<std::string, std::less<>> modules_;
  std::vector<std::string> stars_;
};

/// Finds code that already supports NPUs, which an edit of its CUDA part would break. Returns the functions, top-level statements, class
/// members and logical lines that name an NPU: the texts "npu", "npu:0" and "hccl", names with the part npu (torch.npu, is_npu_available,
/// MULTI_NPU), torch.accelerator, getattr(torch, device, torch.cuda). Also returns CUDA functions that have an NPU counterpart in the file
/// (is_cuda_available and is_npu_available). The result has byte ranges, sorted by their beginning; overlapping ranges are joined.
FileScan::Ranges npu_ranges(const PythonFile& file);
/// Like npu_ranges(), for code that names the variable ASCEND_RT_VISIBLE_DEVICES.
FileScan::Ranges variable_ranges(const PythonFile& file);
/// Returns the position of the first use of torch.npu, torch_npu or torch.accelerator; -1: none.
int64_t first_npu_use(const PythonFile& file);

/// Adds `import torch_npu` and `import npu_distributed` if edits of `scan` need them and no import provides them. The place is after the
/// first import of torch that runs when the module is loaded, or that is in a function with all of the edits; without such an import, after
/// the documentation and imports from __future__.
void import_torch_npu(FileScan& scan, const PythonFile& file);

/// Adds the statement that --distributed needs: set_epoch() at the start of each epoch.
void add_epoch_edits(FileScan& scan, const PythonFile& file);

}  // namespace npu_train::detail::scan
