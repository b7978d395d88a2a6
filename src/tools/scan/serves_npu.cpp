// Finds code that already supports NPUs.
#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "tools/scan/python_file.hpp"

namespace npu_train::detail::scan {
namespace {

// Whether the token is the last name of torch.npu or torch.accelerator.
bool of_torch(const PythonFile& file, size_t i) {
  return file.is(i - 1, ".") && file.is(i - 2, "torch") && (file.is(i, "npu") || file.is(i, "accelerator"));
}

// Returns the position of the component "npu" in is_npu_available or MULTI_NPU; npos if there is none.
size_t npu_part(std::string_view name) {
  for (size_t at = 0; at + 3 <= name.size(); ++at) {
    const bool begins = at == 0 || name[at - 1] == '_', ends = at + 3 == name.size() || name[at + 3] == '_';
    if (begins && ends && (name[at] | 0x20) == 'n' && (name[at + 1] | 0x20) == 'p' && (name[at + 2] | 0x20) == 'u') return at;
  }
  return std::string_view::npos;
}

// Recognises `getattr(torch, device.type, torch.cuda)`, which supports any device, and uses torch.cuda only if torch has no module with the
// name of the device.
bool is_default_module(const PythonFile& file, size_t i) {
  constexpr size_t kFarthest = 16;
  if (!file.is(i, "cuda") || !file.is(i + 1, ")") || !file.is(i - 1, ".") || !file.is(i - 2, "torch") || !file.is(i - 3, ",")) return false;
  for (size_t at = i - 3; at >= 3 && i - at < kFarthest; --at)
    if (file.is(at, ",") && file.is(at - 1, "torch") && file.is(at - 2, "(") && file.is(at - 3, "getattr")) return at < i - 3;
  return false;
}

bool names_npu(const PythonFile& file, size_t i) {
  if (file.is_name(i)) return npu_part(file.word(i)) != std::string_view::npos || of_torch(file, i) || is_default_module(file, i);
  const auto body = file.is_text(i) ? file.body(i) : std::string_view();
  return body == "npu" || body.starts_with("npu:") || body == "hccl";
}

bool names_variable(const PythonFile& file, size_t i) { return file.is_text(i) && file.body(i) == "ASCEND_RT_VISIBLE_DEVICES"; }

class NpuRanges {
 public:
  NpuRanges(const PythonFile& file, bool (*names)(const PythonFile& file, size_t i)) : file_(file), lines_(file.lines()) {
    seen_.push_back(0);
    for (size_t i = 0; i < file.size(); ++i) seen_.push_back(seen_.back() + (names(file, i) ? 1 : 0));
    for (const auto& line : lines_) {
      auto name = std::string(file.name_of_function(line));
      if (const auto at = npu_part(name); at != std::string::npos) counterparts_.insert(name.replace(at, 3, "cuda"));
    }
  }

  FileScan::Ranges run() {
    if (seen_.back() == 0) return {};
    size_t branches_end = 0;  // end of the last top-level statement with its branches, which are not separate statements
    for (size_t k = 0; k < lines_.size(); ++k) {
      const auto& line = lines_[k];
      add(k, k + 1);
      if (const auto name = file_.name_of_function(line); !name.empty()) {
        const auto end = file_.end_of_block(k);
        counterparts_.contains(name) ? leave(k, end) : add(k, end);
      } else if (file_.begins(line, "class")) {
        add_members(k);
      } else if (line.indent == 0 && k >= branches_end && !file_.begins(line, "async")) {
        branches_end = file_.end_of_block(k, true);
        add(k, branches_end);
      }
    }
    std::sort(out_.begin(), out_.end());
    FileScan::Ranges joined;
    for (const auto& range : out_) {
      if (!joined.empty() && range.first <= joined.back().second)
        joined.back().second = std::max(joined.back().second, range.second);
      else
        joined.push_back(range);
    }
    return joined;
  }

 private:
  // Handles classes with `CUDA = "cuda"` and `NPU = "npu"`: if a statement of the class names an NPU, adds all its statements. Functions
  // and classes inside the class do not count.
  void add_members(size_t k) {
    const size_t end = file_.end_of_block(k);
    bool named = false;
    std::vector<size_t> members;
    for (size_t i = k + 1; i < end; ++i) {
      if (lines_[i].indent != lines_[k + 1].indent || !file_.name_of_function(lines_[i]).empty() || file_.begins(lines_[i], "class"))
        continue;
      members.push_back(i);
      named = named || names_it(i, i + 1);
    }
    if (!named) return;
    for (const auto i : members) leave(i, i + 1);
  }

  bool names_it(size_t from, size_t to) const { return seen_[lines_[to - 1].end] > seen_[lines_[from].first]; }

  void leave(size_t from, size_t to) { out_.emplace_back(file_.begin(lines_[from].first), file_[lines_[to - 1].end - 1].end()); }

  void add(size_t from, size_t to) {
    if (names_it(from, to)) leave(from, to);
  }

  const PythonFile& file_;
  const std::vector<PythonLine>& lines_;
  std::vector<size_t> seen_;                         // for each position, the number of tokens before it that name an NPU
  std::set<std::string, std::less<>> counterparts_;  // functions such as is_cuda_available for which the file also defines is_npu_available
  FileScan::Ranges out_;
};

}  // namespace

FileScan::Ranges npu_ranges(const PythonFile& file) { return NpuRanges(file, &names_npu).run(); }

FileScan::Ranges variable_ranges(const PythonFile& file) { return NpuRanges(file, &names_variable).run(); }

int64_t first_npu_use(const PythonFile& file) {
  for (size_t i = 0; i < file.size(); ++i)
    if (file.is_name(i) && (file.is(i, "torch_npu") || of_torch(file, i))) return file.begin(i);
  return -1;
}

}  // namespace npu_train::detail::scan
