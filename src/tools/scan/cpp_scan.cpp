#include <algorithm>
#include <string>
#include <vector>

#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {
namespace {

constexpr size_t kMostOpened = 16;  // namespaces of `using namespace`, in each of which every name is looked up
constexpr size_t kLongestName = 400;

class CppScan : private Tokens {
 public:
  explicit CppScan(FileScan& scan) : Tokens(cpp_tokens(scan.text())), scan_(scan) {}

  void run() {
    find_aliases();
    for (size_t i = 0; i < size();) i = token(i);
  }

 private:
  void add(const Pattern& row, size_t first, size_t last, std::vector<Edit> edits = {}) {
    scan_.add(row, begin(first), span(first, last), std::move(edits));
  }

  // Reads "a::b::c" at `i`, with or without a leading "::"; `last` is its last token. If the name is too long for any table, returns only
  // its start.
  std::string read_name(size_t i, size_t& last) const {
    std::string name(word(i).substr(0, kLongestName));
    last = i;
    while (is(last + 1, "::") && is_name(last + 2)) {
      if (name.size() < kLongestName) name.append("::").append(word(last + 2).substr(0, kLongestName));
      last += 2;
    }
    return name;
  }

  // Finds `namespace a = b::c;`, `using a = b::c;`, `using b::c;` and `using namespace b;`.
  void find_aliases() {
    size_t last = 0;
    for (size_t i = 0; i + 2 < size(); ++i) {
      const bool use = is(i, "using");
      if (!use && !is(i, "namespace")) continue;
      size_t at = i + 1;
      if (is_name(at) && is(at + 1, "=") && is_name(at + 2)) {
        aliases_[std::string(word(at))] = read_name(at + 2, last);
        i = last;
        continue;
      }
      if (!use) continue;
      const bool whole = is(at, "namespace");
      if (whole) ++at;
      if (is(at, "::")) ++at;
      if (!is_name(at)) continue;
      const auto name = read_name(at, last);
      i = last;
      const auto cut = name.rfind("::");
      if (whole && opened_.size() < kMostOpened) {
        opened_.push_back(name);
      } else if (!whole && cut != std::string::npos) {
        aliases_[name.substr(cut + 2)] = name;
      }
    }
  }

  size_t token(size_t i) {
    const auto& token = (*this)[i];
    if (token.kind == TokenKind::Header) {
      if (const auto* row = scan_.facts().table("cpp.header").find(body(i))) scan_.add(*row, token.body, token.body_length);
    } else if (is_text(i)) {
      if (!scan_.add_environment(body(i), token.body)) scan_.add_device_text(body(i), token.body);
    } else if (is_name(i)) {
      return is(i - 1, ".") || is(i - 1, "->") ? member(i) : name(i);
    } else if (is(i, "<<<")) {
      add({&scan_.facts().rule("kernel-launch"), "", ""}, launched(i), i);
    }
    return i + 1;
  }

  // Scans members: `.cuda()`, `->is_cuda()`.
  size_t member(size_t i) {
    if (!is(i + 1, "(")) return i + 1;
    const auto* row = scan_.facts().table("cpp.method").exact(word(i));
    if (row == nullptr) return i + 1;
    const bool whole_call = row->replacement.ends_with(')');  // in that case, the replacement includes the arguments
    const bool mechanical = !row->replacement.empty() && (!whole_call || is(i + 2, ")"));
    const size_t last = whole_call && mechanical ? i + 2 : i;
    std::vector<Edit> edits;
    if (mechanical) edits.push_back({begin(i), span(i, last), row->replacement});
    add(*row, i - 1, last, std::move(edits));
    return last + 1;
  }

  // Returns the name before "<<<", which may have template arguments.
  size_t launched(size_t i) const {
    constexpr size_t kFarthest = 40;
    size_t at = i;
    int depth = 0;
    while (at > 0 && i - at < kFarthest) {
      --at;
      if (is(at, ">")) ++depth;
      if (is(at, "<")) --depth;
      if (depth == 0) return is_name(at) ? at : at > 0 && is(at, "<") && is_name(at - 1) ? at - 1 : i;
    }
    return i;
  }

  size_t name(size_t i) {
    size_t last = i;
    const auto written = read_name(i, last);
    if (!known_name(i, last, written) && last == i) single_word(i);
    return last + 1;
  }

  bool known_name(size_t first, size_t last, const std::string& written) {
    const auto& table = scan_.facts().table("cpp.name");
    const auto base = word(first);
    const auto alias = aliases_.find(base);
    const auto full = (alias == aliases_.end() ? std::string(base) : alias->second).append(written, std::min(base.size(), written.size()));
    auto found = table.find_dotted(full, "::");
    const bool as_written = found.row != nullptr && alias == aliases_.end();
    bool whole = found.length == full.size();
    const bool plain_word = first == last && !is(last + 1, "(");  // after `using namespace torch`, `mode` may be a variable
    for (size_t k = 0; found.row == nullptr && !plain_word && k < opened_.size(); ++k) {
      const auto inside = opened_[k] + "::" + written;
      const auto match = table.find_dotted(inside, "::");
      if (match.literal <= opened_[k].size() + 2) continue;  // at::cuda::* matches any name; the directive itself is reported
      found = match;
      whole = match.length == inside.size();
    }
    if (is(first - 1, "namespace")) {
      if (!is(first - 2, "using")) return true;
      found = table.find_dotted(full + "::", "::");  // the row that covers every name of the namespace
      whole = false;
    }
    if (found.row == nullptr) return false;
    std::vector<Edit> edits;
    const auto& row = *found.row;
    if (whole && !row.replacement.empty() && as_written) {
      edits.push_back({begin(first), span(first, last), row.replacement});
    } else if (whole && !row.replacement.empty()) {
      // With an alias, changes only the last component: kCUDA, DeviceType::CUDA.
      edits.push_back({begin(last), span(last, last), row.replacement.substr(row.replacement.rfind(':') + 1)});
    }
    add(row, first, last, std::move(edits));
    return true;
  }

  // Scans words: `__global__`, `cudaMalloc(...)`, `cudaStream_t`.
  void single_word(size_t i) {
    const auto text = word(i);
    // Recognises TORCH_LIBRARY_IMPL(project, CUDA, m).
    if (is(i + 1, "(") && is(i + 3, ",") && is(i + 4, "CUDA"))
      if (const auto* row = scan_.facts().table("cpp.name").exact(std::string(text) + "(CUDA)")) return add(*row, i, i + 4);
    if (const auto* row = scan_.facts().table("cpp.kernel").exact(text)) {
      kernel(*row, i);
      return;
    }
    size_t upper = 0;
    while (upper < text.size() && text[upper] >= 'a' && text[upper] <= 'z') ++upper;
    const bool camel = upper < text.size() && text[upper] >= 'A' && text[upper] <= 'Z';
    if (!camel || !(is(i + 1, "(") || text.ends_with("_t"))) return;
    if (const auto* row = scan_.facts().table("cpp.prefix").exact(text.substr(0, upper))) add(*row, i, i);
  }

  // Handles a qualifier. It indicates a kernel if a function follows; the finding then extends to the function's name.
  void kernel(const Pattern& row, size_t i) {
    constexpr size_t kFarthest = 60;
    size_t name = i;
    for (size_t at = i + 1; at < size() && at < i + kFarthest && name == i; ++at) {
      if (is(at, "__launch_bounds__")) {
        while (at < size() && at < i + kFarthest && !is(at, ")")) ++at;
      } else if (is(at, ";") || is(at, "{")) {
        break;
      } else if (is(at, "(") && is_name(at - 1)) {
        name = at - 1;
      }
    }
    const bool function = name != i;
    if (!function && row.rule->id == "cuda-kernel") return;
    // Counts `__constant__ __device__` as a single place.
    if (i > 0 && scan_.facts().table("cpp.kernel").exact(word(i - 1)) != nullptr) return;
    add(row, i, std::max(i, name));
  }

  FileScan& scan_;
  TextMap<std::string> aliases_;
  std::vector<std::string> opened_;
};

}  // namespace

void scan_cpp(FileScan& scan) { CppScan(scan).run(); }

}  // namespace npu_train::detail::scan
