#include "tools/scan/file_scan.hpp"

#include <algorithm>

#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail::scan {
namespace {

bool one_of(std::string_view text, std::initializer_list<std::string_view> allowed) {
  return std::find(allowed.begin(), allowed.end(), text) != allowed.end();
}

bool all_digits(std::string_view text) { return std::all_of(text.begin(), text.end(), is_digit); }

// Whether the text may follow "cuda:": an index, or a placeholder for one.
bool is_index(std::string_view text) { return all_digits(text) || text.starts_with('{') || text.starts_with('%') || text.starts_with('$'); }

bool is_other_device(std::string_view text) { return one_of(text, {"cpu", "npu", "mps", "xpu", "meta"}); }
bool is_other_backend(std::string_view text) { return one_of(text, {"gloo", "mpi", "ucc", "hccl"}); }

struct Part {
  const Pattern* row;
  size_t begin, length;
};

// Returns the devices and backends in "cuda", "cuda:0", "nccl", "cpu:gloo,cuda:nccl" or "cpu,cuda"; empty for any other text.
std::vector<Part> device_parts(const Facts& facts, std::string_view text) {
  constexpr size_t kLongest = 64;
  if (text.size() > kLongest || text.find_first_of(" \t\r\n") != std::string_view::npos) return {};
  const auto& devices = facts.table("device");
  const auto& backends = facts.table("backend");
  std::vector<Part> out;
  const bool list = text.find(',') != std::string_view::npos;
  for (size_t begin = 0;;) {
    const auto end = std::min(text.size(), text.find(',', begin));
    const auto item = text.substr(begin, end - begin);
    const auto colon = std::min(item.size(), item.find(':'));
    const auto first = item.substr(0, colon);
    const bool paired = colon < item.size();
    const auto second = paired ? item.substr(colon + 1) : std::string_view();
    const auto* device = devices.exact(first);
    const auto* backend = backends.exact(paired ? second : first);
    const bool known = device != nullptr || is_other_device(first) || (!paired && (backend != nullptr || is_other_backend(first)));
    const bool sound = !paired || backend != nullptr || is_other_backend(second) || is_index(second);
    if (!known || !sound || (list && paired && second.empty())) return {};
    if (device != nullptr) out.push_back({device, begin, first.size()});
    if (backend != nullptr) out.push_back({backend, begin + (paired ? colon + 1 : 0), paired ? second.size() : first.size()});
    if (end == text.size()) return out;
    begin = end + 1;
  }
}

// File names in lower case; the first row with a matching pattern decides.
struct LanguageRow {
  Language language;
  std::string_view names;
  void (*scan)(FileScan&);
};
constexpr LanguageRow kLanguages[] = {
    {Language::CMake, "cmakelists.txt *.cmake", &scan_cmake},
    {Language::Requirements, "*requirement*.txt *requirement*.in *constraint*.txt *constraint*.in", &scan_requirements},
    {Language::Toml, "pyproject.toml pipfile setup.cfg", &scan_toml},
    {Language::Conda, "environment*.yml environment*.yaml conda*.yml conda*.yaml env.yml env.yaml env.*.yml env.*.yaml", &scan_conda},
    {Language::Yaml, "*.yml *.yaml", &scan_yaml},
    {Language::Python, "*.py *.pyw", &scan_python},
    {Language::Cuda, "*.cu *.cuh", &scan_cpp},
    {Language::Cpp, "*.cpp *.cc *.cxx *.c *.h *.hpp *.hh *.hxx *.inl *.ipp *.tpp", &scan_cpp},
    {Language::Shell, "*.sh *.bash *.zsh *.slurm *.sbatch *.dockerfile *.mk dockerfile* containerfile* makefile .env", &scan_shell},
    {Language::Json, "*.json", &scan_json},
    {Language::Notebook, "*.ipynb", &scan_notebook},
};

}  // namespace

Language language_of(std::string_view file_name, std::string_view folder_name, std::string_view start) {
  const auto name = to_lower(file_name);
  for (const auto& row : kLanguages)
    for (const auto pattern : npu_train::detail::split_view(row.names, ' '))
      if (glob_matches(name, pattern)) return row.language;
  if (name.ends_with(".txt") && to_lower(folder_name).find("requirement") != std::string::npos) return Language::Requirements;
  if (name.find('.') == std::string::npos && start.starts_with("#!")) {
    const auto line = start.substr(0, start.find('\n'));
    if (line.find("python") != std::string_view::npos) return Language::Python;
    if (line.find("sh") != std::string_view::npos) return Language::Shell;
  }
  return Language::None;
}

void FileScan::add(const Pattern& row, uint32_t begin, uint32_t length, std::vector<Edit> edits) {
  hits_.push_back({.rule = row.rule, .begin = begin, .length = length, .advice = row.advice, .edits = std::move(edits)});
}

void FileScan::add(std::string_view rule, uint32_t begin, uint32_t length, std::vector<Edit> edits) {
  hits_.push_back({.rule = &facts_.rule(rule), .begin = begin, .length = length, .edits = std::move(edits)});
}

void FileScan::add(const Library& library, uint32_t begin, uint32_t length) {
  hits_.push_back({.rule = &library.rule, .library = &library, .begin = begin, .length = length});
}

bool FileScan::add_device_text(std::string_view body, uint32_t at, bool editable) {
  constexpr std::string_view kTypes = "torch.cuda.";
  if (body.starts_with(kTypes) && body.ends_with("Tensor")) {
    if (const auto* row = facts_.table("py.name").exact(body)) {
      const bool mechanical = editable && !row->replacement.empty();
      add(*row, at, static_cast<uint32_t>(body.size()),
          mechanical ? std::vector<Edit>{{at, static_cast<uint32_t>(body.size()), row->replacement}} : std::vector<Edit>());
      return true;
    }
  }
  const auto parts = device_parts(facts_, body);
  for (const auto& part : parts) {
    const auto begin = at + static_cast<uint32_t>(part.begin), length = static_cast<uint32_t>(part.length);
    // The finding of a single device covers the complete text; that of a device in a list covers only its part.
    const bool alone = parts.size() == 1;
    add(*part.row, alone ? at : begin, alone ? static_cast<uint32_t>(body.size()) : length,
        editable ? std::vector<Edit>{{begin, length, part.row->replacement}} : std::vector<Edit>());
  }
  return !parts.empty();
}

bool FileScan::is_device_text(std::string_view body) const { return !device_parts(facts_, body).empty(); }

namespace {

bool is_rank_edit(const Edit& edit) { return edit.text.starts_with(std::string(kRankModule) + "."); }

}  // namespace

bool FileScan::has_device_edits() const {
  return std::any_of(hits_.begin(), hits_.end(), [](const Hit& hit) {
    return hit.rule->id != "cuda-env" && !std::all_of(hit.edits.begin(), hit.edits.end(), is_rank_edit);
  });
}

uint32_t FileScan::rank_edits_begin() const {
  uint32_t out = UINT32_MAX;
  for (const auto& hit : hits_)
    for (const auto& edit : hit.edits)
      if (is_rank_edit(edit)) out = std::min(out, edit.begin);
  return out;
}

bool FileScan::edits_lie_in(uint32_t begin, uint32_t end) const {
  return std::all_of(hits_.begin(), hits_.end(), [&](const Hit& hit) {
    return hit.edits.empty() || hit.rule->id == "cuda-env" || (hit.edits.front().begin >= begin && hit.edits.back().begin < end);
  });
}

bool FileScan::add_environment(std::string_view name, uint32_t at) {
  if (!std::all_of(name.begin(), name.end(), is_name_char)) return false;
  const auto* row = facts_.table("env").find(name);
  if (row == nullptr) return false;
  const auto length = static_cast<uint32_t>(name.size());
  add(*row, at, length, row->replacement.empty() ? std::vector<Edit>() : std::vector<Edit>{{at, length, row->replacement}});
  return true;
}

void FileScan::leave(const Ranges& ranges, const Ranges& variables) {
  const auto& rule = facts_.rule("serves-npu");
  for (auto& hit : hits_) {
    const bool variable = hit.rule->id == "cuda-env";
    if (hit.edits.empty() && !variable && !one_of(hit.rule->id, {"device-key", "device-list", "own-cuda-method"})) continue;
    const auto& left = variable ? variables : ranges;
    const auto after = std::upper_bound(left.begin(), left.end(), hit.begin, [](uint32_t at, const auto& r) { return at < r.first; });
    if (after == left.begin() || hit.begin >= std::prev(after)->second) continue;
    hit.rule = &rule;
    hit.advice = {};
    hit.edits.clear();
  }
}

std::vector<Hit> FileScan::take() {
  const auto place = [](const Hit& hit) { return hit.edits.empty() ? hit.begin : hit.edits.front().begin; };
  std::stable_sort(hits_.begin(), hits_.end(), [&](const Hit& a, const Hit& b) { return place(a) < place(b); });
  return std::move(hits_);
}

std::vector<Hit> scan_file(const Facts& facts, const SourceFile& file, const IsLocalModule& is_local, bool ranks, FileMarks* marks) {
  FileScan scan(facts, file, is_local, ranks);
  for (const auto& row : kLanguages)
    if (row.language == file.language) row.scan(scan);
  if (marks != nullptr) *marks = scan.marks;
  auto hits = scan.take();
  uint32_t free_from = 0;
  for (auto& hit : hits) {
    const bool unfit = std::any_of(hit.edits.begin(), hit.edits.end(), [&](const Edit& e) {
      return e.begin < free_from || std::string_view(file.text).substr(e.begin, e.length).find('\n') != std::string_view::npos;
    });
    if (unfit || file.language == Language::Cuda) hit.edits.clear();
    for (const auto& edit : hit.edits) free_from = std::max(free_from, edit.begin + edit.length);
  }
  return hits;
}

bool EmbeddedCode::in_one_piece(const Edit& edit) const {
  for (size_t i = edit.begin; i + 1 < edit.begin + edit.length; ++i)
    if (places_[i].end != places_[i + 1].begin) return false;
  return edit.length > 0 || edit.begin > 0;
}

void EmbeddedCode::scan_as_python(FileScan& scan, Encode encode) const {
  if (code_.empty()) return;
  const SourceFile inner{scan.file().path, Language::Python, code_};
  // an insertion is placed after the previous byte, in the same piece of text
  const auto begin_of = [&](const Edit& e) { return e.length > 0 ? places_[e.begin].begin : places_[e.begin - 1].end; };
  for (auto& hit : scan_file(scan.facts(), inner, scan.is_local())) {
    if (hit.begin >= places_.size()) continue;
    const auto last = hit.begin + (hit.length > 0 ? hit.length - 1 : 0);
    bool sound = true;
    for (auto& edit : hit.edits) {
      sound = sound && in_one_piece(edit);
      if (!sound) break;
      const auto begin = begin_of(edit);
      edit = {begin, edit.length > 0 ? places_[edit.begin + edit.length - 1].end - begin : 0, encode(edit.text)};
    }
    if (!sound) hit.edits.clear();
    hit.length = hit.length > 0 ? places_[last].end - places_[hit.begin].begin : 0;
    hit.begin = places_[hit.begin].begin;
    scan.add(std::move(hit));
  }
}

std::string replacement_of(std::string_view text, const Hit& hit) {
  const auto end = hit.begin + hit.length;
  const bool inside = std::all_of(hit.edits.begin(), hit.edits.end(),
                                  [&](const Edit& e) { return e.begin >= hit.begin && e.begin + e.length <= end && e.length > 0; });
  std::string out;
  size_t at = hit.begin;
  for (const auto& edit : hit.edits) {
    if (inside) out += text.substr(at, edit.begin - at);
    if (!inside && !out.empty()) out += ", ";
    const auto first = std::min(edit.text.size(), edit.text.find_first_not_of("\r\n \t;")), last = edit.text.find_last_not_of("\r\n");
    out += inside ? edit.text : edit.text.substr(first, last + 1 - first);
    at = edit.begin + edit.length;
  }
  return inside ? out += text.substr(at, end - at) : out;
}

std::string edited(std::string_view text, const std::vector<Hit>& hits) {
  std::string out;
  size_t at = 0;
  for (const auto& hit : hits)
    for (const auto& edit : hit.edits) {
      out += text.substr(at, edit.begin - at);
      out += edit.text;
      at = edit.begin + edit.length;
    }
  return out += text.substr(at);
}

}  // namespace npu_train::detail::scan
