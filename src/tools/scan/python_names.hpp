// The meaning of the names of a Python file: its imports.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/scan/facts.hpp"
#include "tools/scan/file_scan.hpp"
#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {

// "torch.cuda" of "torch.cuda.amp" and of "torch.cuda", not of "torch.cudart".
inline bool lies_in(std::string_view name, std::string_view module) {
  return name == module || (name.starts_with(module) && name.size() > module.size() && name[module.size()] == '.');
}

struct ImportedName {
  std::string name;   // in `import torch.nn as nn`: "torch.nn"; in `from torch import nn`: "nn"
  std::string bound;  // the name in this file; "torch" for `import torch.nn`
  bool renamed = false;
  size_t first = 0, last = 0;  // tokens of `name`
};

/// `import a.b as c, d` or `from a.b import c as d, e`.
struct ImportStatement {
  bool from = false, star = false, relative = false;
  std::string module;                        // of `from`
  size_t module_first = 0, module_last = 0;  // its tokens
  std::vector<ImportedName> names;
  size_t begin = 0, end = 0;  // tokens; `end` is behind the last
};

class PythonNames {
 public:
  PythonNames(std::string_view text, const std::vector<Token>& tokens);

  const std::vector<ImportStatement>& imports() const { return imports_; }
  /// What `name` was bound to by an import; nullptr otherwise.
  const std::string* target(std::string_view name) const;
  /// True when `import` bound `name`, so that it is a module and no object.
  bool is_module(std::string_view name) const { return modules_.find(name) != modules_.end(); }
  /// Modules of `from MODULE import *`.
  const std::vector<std::string>& stars() const { return stars_; }
  /// True when any import brings in `module` or a part of it.
  bool imports_module(std::string_view module) const;

 private:
  size_t read_statement(size_t i);
  size_t read_dotted(size_t i, std::string& name, size_t& last) const;
  size_t read_names(size_t i, ImportStatement& statement);
  bool is(size_t i, TokenKind kind, std::string_view word) const;

  std::string_view text_;
  const std::vector<Token>& tokens_;
  std::vector<ImportStatement> imports_;
  TextMap<std::string> targets_;
  std::set<std::string, std::less<>> modules_;
  std::vector<std::string> stars_;
};

/// Adds `import torch_npu` where edits of `scan` need it and nothing imports it: behind the first import of torch that runs with the
/// module, in a function that holds all of the edits, or behind the documentation and __future__.
void import_torch_npu(FileScan& scan, const std::vector<Token>& tokens, const PythonNames& names);

}  // namespace npu_train::detail::scan
