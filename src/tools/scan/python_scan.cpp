#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "tools/scan/python_file.hpp"

namespace npu_train::detail::scan {
namespace {

class PythonScan : private PythonFile {
 public:
  PythonScan(FileScan& scan) : PythonFile(scan.text()), scan_(scan) {}

  void run() {
    find_own_names();
    find_requirements();
    for (const auto& statement : imports()) import_statement(statement);
    if (scan_.ranks()) add_epoch_edits(scan_, *this);  // added before other edits of the same statements
    auto next = imports().begin();
    for (size_t i = 0; i < size();) {
      if (i == 0 || is_line_end(i - 1)) statement_ = i;
      while (next != imports().end() && next->end <= i) ++next;
      i = next != imports().end() && next->begin <= i ? next->end : token(i);
    }
    names_without_use();
    if (saves_)
      for (auto& hit : of_files_) scan_.add(std::move(hit));
    scan_.leave(npu_ranges(*this), variable_ranges(*this));
    scan_.marks.npu = first_npu_use(*this);
    import_torch_npu(scan_, *this);
  }

 private:
  void add(const Pattern& row, size_t first, size_t last, std::vector<Edit> edits = {}) {
    scan_.add(row, begin(first), span(first, last), std::move(edits));
  }

  Edit edit(size_t first, size_t last, std::string text) const { return {begin(first), span(first, last), std::move(text)}; }

  // Finds names that the project itself defines: methods such as `def cuda(self)`, which a call would no longer find after its rewrite to
  // .npu(), and attributes such as `self.is_cuda = ...` or `def is_cuda(self)`, which are not attributes of a tensor.
  void find_own_names() {
    const auto &methods = scan_.facts().table("py.method"), &attributes = scan_.facts().table("py.attribute");
    for (size_t i = 0; i < size(); ++i) {
      const bool defined = is(i, "def") && is_name(i + 1);
      const bool set = is(i, "self") && is(i + 1, ".") && (is(i + 3, "=") || is(i + 3, ":"));
      if (!defined && !set) continue;
      const auto name = word(defined ? i + 1 : i + 2);
      if (attributes.exact(name) != nullptr) own_attributes_.emplace(name);
      const auto* row = defined ? methods.exact(name) : nullptr;
      if (row == nullptr || row->replacement.empty()) continue;
      own_methods_.emplace(name);
      scan_.add("own-cuda-method", begin(i), span(i, i + 1));
    }
  }

  void import_statement(const ImportStatement& statement) {
    if (statement.relative) return;
    std::set<const Library*> told;
    const auto library = [&](std::string_view module, size_t first, size_t last) {
      const auto* found = scan_.facts().by_import(module);
      if (found == nullptr || scan_.is_local()(module.substr(0, module.find('.'))) || !told.insert(found).second) return;
      scan_.add(*found, begin(first), span(first, last));
    };
    if (!statement.from) {
      for (const auto& name : statement.names) {
        library(name.name, name.first, name.last);
        import_of_module(name);
      }
      return;
    }
    if (statement.names.empty()) library(statement.module, statement.module_first, statement.module_last);
    for (const auto& name : statement.names) {
      const auto full = statement.module + "." + name.name;
      const bool of_name = scan_.facts().by_import(full) != scan_.facts().by_import(statement.module);
      of_name ? library(full, name.first, name.last) : library(statement.module, statement.module_first, statement.module_last);
    }
    import_from(statement);
  }

  // Handles `import torch.cuda.amp as amp`.
  void import_of_module(const ImportedName& name) {
    if (!lies_in(name.name, "torch.cuda")) return;
    const auto* row = scan_.facts().table("py.module").exact(name.name);
    if (row == nullptr) {
      scan_.add("cuda-import", begin(name.first), span(name.first, name.last));
      return;
    }
    // Without `as`, the statement binds torch, which must remain bound.
    add(*row, name.first, name.last, {edit(name.first, name.last, name.renamed ? row->replacement : "torch")});
  }

  // Handles `from torch.cuda.amp import autocast` and `from torch import cuda`.
  void import_from(const ImportStatement& statement) {
    const auto& facts = scan_.facts();
    if (lies_in(statement.module, "torch.cuda")) {
      const auto* row = facts.table("py.module").exact(statement.module);
      const bool all = row != nullptr && std::all_of(statement.names.begin(), statement.names.end(), [&](const ImportedName& name) {
                         const auto found = facts.table("py.name").find_dotted(statement.module + "." + name.name, ".");
                         return found.row != nullptr && !found.row->replacement.empty();
                       });
      const Pattern plain{&facts.rule("cuda-import"), "", ""};
      add(row == nullptr ? plain : *row, statement.module_first, statement.module_last,
          all ? std::vector<Edit>{edit(statement.module_first, statement.module_last, row->replacement)} : std::vector<Edit>());
      return;
    }
    for (const auto& name : statement.names) {
      const auto full = statement.module + "." + name.name;
      const auto* row = full == "torch.cuda" ? facts.table("py.module").exact(full) : nullptr;
      if (row == nullptr) continue;
      std::vector<Edit> edits;
      if (statement.names.size() == 1) {
        edits.push_back(edit(statement.module_first, statement.module_last, "torch_npu"));
        edits.push_back(edit(name.first, name.last, name.renamed ? "npu" : "npu as cuda"));
      }
      add(*row, name.first, name.last, std::move(edits));
    }
  }

  size_t token(size_t i) {
    if (is_text(i)) {
      string(i);
      return i + 1;
    }
    if (!is_name(i)) return i + 1;
    if (is(i - 1, ".")) {
      member(i);
      return i + 1;
    }
    keyword(i);
    return chain(i);
  }

  // Reads a chain `a.b.c` as far as possible. Returns the next token.
  size_t chain(size_t first) {
    std::string written(word(first));
    size_t last = first;
    while (is(last + 1, ".") && is_name(last + 2)) {
      written += '.';
      written += word(last + 2);
      last += 2;
    }
    if (!known_name(first, last, written))
      for (size_t i = first + 2; i <= last; i += 2) member(i);
    return last + 1;
  }

  // Looks up `written` by the full name that imports give to it. Returns true if the chain needs no further scan.
  bool known_name(size_t first, size_t last, const std::string& written) {
    const auto base = word(first);
    const auto* bound = target(base);
    const auto full = (bound == nullptr ? std::string(base) : *bound) + written.substr(base.size());
    if (scan_.marks.ranks < 0 && is(last + 1, "(") && scan_.facts().table("ranks.start").exact(full) != nullptr)
      scan_.marks.ranks = begin(first);
    if (scan_.ranks() && rank_name(first, last, full)) return true;
    const auto& table = scan_.facts().table("py.name");
    auto found = table.find_dotted(full, ".");
    if (found.row == nullptr && bound == nullptr)
      for (const auto& module : stars())
        // A row such as torch.cuda.* would match every name of the file, so the row must match more than the module.
        if (const auto inside = table.find_dotted(module + "." + written, "."); inside.literal > module.size() + 1) {
          add(*inside.row, first, last);
          return true;
        }
    if (found.row == nullptr && bound != nullptr && last == first + 2) {
      if (!is_module(base)) member(last, true);  // a function of a module, such as numpy.double(), is no member
      return true;
    }
    if (found.row == nullptr || (bound == nullptr && base != "torch")) return false;
    used_.insert(std::string(base));
    if (found.row->rule->id == "data-parallel" && is_type_test(first, last)) return true;  // the test is false if there is no such model
    name_found(first, last, found, bound == nullptr ? base : std::string_view(*bound), full);
    return true;
  }

  // Replaces a name by that of npu_distributed.py. Classes of models are replaced wherever they are named, other names if they are called.
  bool rank_name(size_t first, size_t last, const std::string& full) {
    const auto* row = scan_.facts().table("ranks.name").exact(full);
    if (row == nullptr) return false;
    const bool model = row->rule->id == "data-parallel", base = is(statement_, "class"), called = is(last + 1, "(");
    if (row->replacement.empty()) {  // a call on files, which is reported if rank 0 writes files
      if (called && target(word(first)) != nullptr)
        of_files_.push_back({.rule = row->rule, .begin = begin(first), .length = span(first, last), .advice = row->advice});
      return false;
    }
    saves_ |= full == "torch.save";
    if (!model && !base && !called) {
      if (is_passed_on(first, last)) by_hand(first, last, "the name is passed on: use that of npu_distributed");
      return false;
    }
    if (called && full.ends_with(".DataLoader")) samplers(last + 1);
    used_.insert(std::string(word(first)));
    if (!model && base) {  // a derived class of the project has its own arguments
      add(*row, first, last);
      return true;
    }
    const bool together = text().substr(begin(first), span(first, last)).find_first_of(" \t\r\n\\") == std::string_view::npos;
    add(*row, first, last, together ? std::vector<Edit>{edit(first, last, row->replacement)} : std::vector<Edit>());
    return true;
  }

  // Reports a place that must be changed for several processes, which only a person can do.
  void by_hand(size_t first, size_t last, std::string_view advice) {
    scan_.add({.rule = &scan_.facts().rule("ranks"), .begin = begin(first), .length = span(first, last), .advice = advice});
  }

  // Returns the bracket that is still open at a token of a statement; size() if there is none.
  size_t opening(size_t i) const {
    constexpr size_t kFarthest = 256;
    int closed = 0;
    for (size_t k = i; k > 0 && i - k < kFarthest && !is_line_end(k - 1);) {
      --k;
      if (is(k, ")") || is(k, "]") || is(k, "}")) ++closed;
      if ((is(k, "(") || is(k, "[") || is(k, "{")) && closed-- == 0) return k;
    }
    return size();
  }

  bool in_subscript(size_t i) const {
    const auto open = opening(i);
    return open > 0 && is(open, "[") && is_value(open - 1);
  }

  // Recognises a name that is passed on, as in partial(DataLoader, ...) and save = torch.save. Annotations and tests of types do not count.
  bool is_passed_on(size_t first, size_t last) const {
    if (first == 0 || is(last + 1, ".") || in_subscript(first) || is_type_test(first, last)) return false;
    return is(first - 1, "=") || is(first - 1, "return") || is(first - 1, "(") || is(first - 1, ",");
  }

  // Reports sampler=... and batch_sampler=... of the call that begins at the bracket `open`.
  void samplers(size_t open) {
    int depth = 0;
    for (size_t i = open; i < size() && !is_line_end(i); ++i) {
      if (is(i, "(") || is(i, "[") || is(i, "{")) ++depth;
      if ((is(i, ")") || is(i, "]") || is(i, "}")) && --depth == 0) return;
      const bool sampler = (is(i, "sampler") || is(i, "batch_sampler")) && is(i + 1, "=") && !is(i + 2, "None");
      if (depth == 1 && sampler) by_hand(i, i, "every rank reads all that it yields: divide it among the ranks");
    }
  }

  // Whether Python allows only a literal here: in a pattern, an annotation or Literal[...], next to another string, or as bytes.
  bool must_be_literal(size_t i) const {
    const auto prefix = text().substr(begin(i), (*this)[i].body - begin(i));
    if (prefix.find_first_of("bB") != std::string_view::npos || is_text(i + 1)) return true;
    if (i == 0) return false;
    if (is_text(i - 1) || is(i - 1, "}") || is(i - 1, "->") || in_subscript(i)) return true;
    if (is(statement_, "case") && !is(statement_ + 1, "=")) return true;
    const bool parameter = (is(statement_, "def") || is(statement_, "async")) && is(opening(i), "(");
    return is(i - 1, ":") && i > 1 && is_name(i - 2) && (parameter || i - 2 == statement_);
  }

  // Whether the text is the name of an environment variable that the code sets.
  bool is_set_variable(size_t i) const {
    if (i < 2) return false;
    return (is(i + 1, "]") && is(i + 2, "=")) || is(i + 1, ":") || is(i - 2, "setdefault") || is(i - 2, "putenv");
  }

  // Recognises isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)).
  bool is_type_test(size_t first, size_t last) const {
    constexpr size_t kFarthest = 64;
    if (is(last + 1, "(")) return false;
    int closed = 0;
    for (size_t i = first; i > 1 && first - i < kFarthest && !is_line_end(i - 1);) {
      --i;
      if (is(i, ")") || is(i, "]")) ++closed;
      if (!is(i, "(") && !is(i, "[")) continue;
      if (closed > 0)
        --closed;
      else if (is(i - 1, "isinstance") || is(i - 1, "issubclass"))
        return true;
    }
    return false;
  }

  void name_found(size_t first, size_t last, const PatternTable::DottedMatch& found, std::string_view module, const std::string& full) {
    const auto& row = *found.row;
    const auto beyond = full.substr(found.length);  // attributes after the matched part
    size_t end = last - 2 * static_cast<size_t>(std::count(beyond.begin(), beyond.end(), '.'));
    end = std::max(end, first);
    for (size_t i = end + 2; i <= last; i += 2) member(i);
    // The edit of a name from torch.cuda is made at its import.
    if (!row.replacement.empty() && lies_in(module, "torch.cuda")) return;
    if (row.replacement.empty() || !lies_in(row.replacement, module)) return add(row, first, end);
    auto replacement = row.replacement;
    if (replacement.ends_with('*')) {  // "torch.npu.random.*" keeps the text that matched the star of the pattern
      const auto known = full.substr(0, found.length);
      replacement = replacement.substr(0, replacement.size() - 1) + known.substr(known.rfind('.') + 1);
    }
    const auto put = std::string(word(first)) + replacement.substr(module.size());
    const bool together = text().substr(begin(first), span(first, end)).find_first_of(" \t\r\n\\") == std::string_view::npos;
    add(row, first, end, together ? std::vector<Edit>{edit(first, end, put)} : std::vector<Edit>());
  }

  // Handles `.cuda()` and `.is_cuda` on any receiver.
  void member(size_t i, bool only_mechanical = false) {
    const auto name = word(i);
    const bool called = is(i + 1, "(");
    const auto* row = called ? scan_.facts().table("py.method").exact(name) : nullptr;
    if (row == nullptr) row = scan_.facts().table("py.attribute").exact(name);
    if (row == nullptr || (only_mechanical && row->replacement.empty())) return;
    const bool of_self = is(i - 2, "self");
    if (!called && of_self && own_attributes_.contains(name)) return;
    const bool own = of_self && own_methods_.contains(name);
    const bool mechanical = !row->replacement.empty() && !own;
    auto edits = mechanical ? std::vector<Edit>{edit(i, i, row->replacement)} : std::vector<Edit>();
    // Replaces .cuda(0) by .npu() for ranks, because each has its own device.
    if (scan_.ranks() && mechanical && called && is_kind(i + 2, TokenKind::Number) && is(i + 3, ")"))
      edits.push_back(edit(i + 2, i + 2, ""));
    else if (scan_.ranks() && mechanical && called && names_device(i + 2))
      by_hand(i + 2, i + 2, "each rank has its own device: omit the number");
    add(*row, i - 1, i, std::move(edits));
  }

  // Whether the first argument of .cuda() names a device.
  bool names_device(size_t i) const { return !is(i, ")") && !is(i, "None") && (!is(i + 1, "=") || is(i, "device")); }

  // Handles the keywords `fused=True` and `cuda_sources=[...]`.
  void keyword(size_t i) {
    if (!is(i + 1, "=") || i == 0 || !(is(i - 1, "(") || is(i - 1, ","))) return;
    const auto& table = scan_.facts().table("py.keyword");
    const auto name = word(i);
    if (scan_.ranks() && name == "reduction" && is_text(i + 2) && body(i + 2) == "sum")
      by_hand(i, i + 2, "gradients are averaged over the ranks: multiply the loss by npu_distributed.world_size()");
    if (const auto* row = table.exact(name)) return add(*row, i, i);
    if (i + 2 >= size()) return;
    const auto value = is_text(i + 2) ? '"' + std::string(body(i + 2)) + '"' : std::string(word(i + 2));
    if (const auto* row = table.exact(std::string(name) + "=" + value)) add(*row, i, i + 2);
  }

  // Whether "[" after this token is an index, not the start of a list.
  bool is_value(size_t i) const {
    static constexpr std::string_view kWords[] = {"return", "in",    "else", "and",    "or",   "not",
                                                  "if",     "yield", "is",   "assert", "case", "lambda"};
    if (is_name(i)) return std::find(std::begin(kWords), std::end(kWords), word(i)) == std::end(kWords);
    return is(i, "]") || is(i, ")") || is(i, "}");
  }

  void string(size_t i) {
    const auto& token = (*this)[i];
    const auto body = token.body_in(text());
    const bool starts = i == 0 || is_line_end(i - 1);
    if (starts && is_line_end(i + 1)) return;  // a docstring
    if (scan_.ranks() && body == "CUDA_VISIBLE_DEVICES" && is_set_variable(i))
      by_hand(i, i, "it must leave each rank its device: set it before the launcher starts");
    if (scan_.add_environment(body, token.body)) return;
    if (in_requirements(i)) return scan_requirement(scan_, body, token.body);
    if (is(statement_, "__all__")) return;                        // a list of names
    const bool first_device = scan_.ranks() && body == "cuda:0";  // replaced by the device of each rank
    if (is(i - 1, "[") && is(i + 1, "]") && is_value(i - 2) && !(first_device && is(i - 2, "Literal"))) return;  // the key of a container
    if ((is(i - 1, "{") || is(i - 1, ",")) && is(i + 1, ":")) {
      if (scan_.is_device_text(body)) scan_.add("device-key", token.begin, token.length);
      return;
    }
    if (is_value_of_device(i)) return;  // the key is reported
    if (scan_.is_device_text(body) && in_list_of_devices(i)) {
      scan_.add("device-list", token.begin, token.length);
      return;
    }
    const bool literal = first_device && must_be_literal(i);
    if (literal) by_hand(i, i, "only a literal may stand here: it names the first NPU on every rank");
    if (first_device && !literal)
      return scan_.add("ranks", token.begin, token.length, {edit(i, i, std::string(kRankModule) + ".device()")});
    scan_.add_device_text(body, token.body);
  }

  // Recognises "nccl" in {"cuda": "nccl"}.
  bool is_value_of_device(size_t i) const {
    return is(i - 1, ":") && is_text(i - 2) && (is(i - 3, "{") || is(i - 3, ",")) && scan_.is_device_text(body(i - 2));
  }

  // Recognises "cuda" in ["cuda", "xpu"]: a list of texts that has another kind of accelerator. Arguments of a call do not count.
  bool in_list_of_devices(size_t i) const {
    static constexpr std::string_view kKinds[] = {"xpu", "mps", "hpu", "npu", "mlu", "musa", "hip", "rocm", "xla", "tpu", "mtia"};
    constexpr size_t kLongest = 64;
    const auto is_item = [&](size_t k) { return is_text(k) || is(k, ","); };
    size_t first = i, last = i;
    while (first > 0 && i - first < kLongest && is_item(first - 1)) --first;
    while (last - i < kLongest && is_item(last + 1)) ++last;
    if (first == 0) return false;
    const bool several = last - first > 1;  // Literal["cuda", "xpu"] is not a key of a container
    const bool list = is(first - 1, "[") && (several || !is_value(first - 2));
    const bool tuple = is(first - 1, "(") && !is_value(first - 2);
    if (!list && !tuple && !is(first - 1, "{")) return false;
    for (size_t k = first; k <= last; ++k)
      if (std::find(std::begin(kKinds), std::end(kKinds), body(k)) != std::end(kKinds)) return true;
    return false;
  }

  // Finds the texts of install_requires=[...] in a setup.py, or of a list assigned to `requirements`.
  void find_requirements() {
    const auto path = std::string_view(scan_.file().path);
    if (path.substr(path.rfind('/') + 1) != "setup.py") return;
    for (size_t i = 0; i + 2 < size(); ++i) {
      const bool list = is(i + 1, "=") && (is(i + 2, "[") || is(i + 2, "{") || is(i + 2, "("));
      if (!list || !is_name(i) || word(i).find("require") == std::string_view::npos) continue;
      int depth = 0;
      size_t end = i + 2;
      for (; end < size(); ++end) {
        if (is(end, "[") || is(end, "{") || is(end, "(")) ++depth;
        if ((is(end, "]") || is(end, "}") || is(end, ")")) && --depth == 0) break;
      }
      requirements_.emplace_back(i, end);
      i = end;
    }
  }

  bool in_requirements(size_t i) const {
    const auto behind =  // the first range that begins at or after the token; ranges are in order and do not overlap
        std::partition_point(requirements_.begin(), requirements_.end(), [i](const auto& range) { return range.first < i; });
    return behind != requirements_.begin() && i < std::prev(behind)->second;
  }

  // Reports names that are imported but not used, such as `from torch.nn import DataParallel`, since no use can be reported.
  void names_without_use() {
    for (const auto& statement : imports()) {
      if (!statement.from || statement.relative || lies_in(statement.module, "torch.cuda")) continue;
      for (const auto& name : statement.names) {
        const auto full = statement.module + "." + name.name;
        if (used_.contains(name.bound) || full == "torch.cuda") continue;
        if (imports_module(kRankModule) && scan_.facts().table("ranks.name").exact(full) != nullptr) continue;  // its uses were replaced
        const auto found = scan_.facts().table("py.name").find_dotted(full, ".");
        if (found.row != nullptr && found.length == full.size()) add(*found.row, name.first, name.last);
      }
    }
  }

  FileScan& scan_;
  std::set<std::string, std::less<>> own_methods_, own_attributes_, used_;
  std::vector<std::pair<size_t, size_t>> requirements_;
  size_t statement_ = 0;       // first token of the current line
  std::vector<Hit> of_files_;  // calls on files, which are reported if rank 0 writes files
  bool saves_ = false;
};

}  // namespace

void scan_python(FileScan& scan) { PythonScan(scan).run(); }

}  // namespace npu_train::detail::scan
