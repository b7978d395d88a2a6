// The meaning of names in a Python file, by its imports.
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

// Whether a name is in a module: "torch.cuda.amp" and "torch.cuda" are in "torch.cuda", "torch.cudart" is not.
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

class PythonNames {
 public:
  PythonNames(std::string_view text, const std::vector<Token>& tokens);

  const std::vector<ImportStatement>& imports() const { return imports_; }
  /// Returns the full name to which an import bound `name`; nullptr if none did.
  const std::string* target(std::string_view name) const;
  /// Whether `import` bound `name`, so that it is a module and not an object.
  bool is_module(std::string_view name) const { return modules_.find(name) != modules_.end(); }
  /// Modules imported by `from MODULE import *`.
  const std::vector<std::string>& stars() const { return stars_; }
  /// Whether any import loads `module` or a part of it.
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

/// Adds `import torch_npu` if edits of `scan` need it and no import provides it: after the first import of torch that runs with the module,
/// in a function that contains all of the edits, or after the documentation and __future__.
void import_torch_npu(FileScan& scan, const std::vector<Token>& tokens, const PythonNames& names);

}  // namespace npu_train::detail::scan
