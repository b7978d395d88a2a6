// Finds places in one file, with the edits that fix them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/scan/facts.hpp"
#include "tools/scan/tokens.hpp"

namespace npu_train::detail::scan {

/// Replaces `length` bytes at `begin`, always within one line.
struct Edit {
  uint32_t begin = 0, length = 0;
  std::string text;
};

struct Hit {
  const Rule* rule = nullptr;
  const Library* library = nullptr;
  uint32_t begin = 0, length = 0;
  std::string_view advice{};  // advice of the table's row
  std::vector<Edit> edits{};  // empty: a person has to make the change
};

enum class Language { None, Python, Cpp, Cuda, CMake, Requirements, Toml, Conda, Shell, Yaml, Json, Notebook };

/// Determines the language from a file's name; `start` is its first line, for files without an extension.
Language language_of(std::string_view file_name, std::string_view folder_name, std::string_view start);

struct SourceFile {
  std::string path;  // relative, in the notation of the file system
  Language language = Language::None;
  std::string text;
};

/// Whether `import NAME` in a file refers to a module of the project itself.
using IsLocalModule = std::function<bool(std::string_view name)>;

/// Positions in a file that decide how the complete project is treated.
struct FileMarks {
  int64_t npu = -1;    // the first use of an NPU; -1: none
  int64_t ranks = -1;  // the first code that starts ranks itself; -1: none
};

/// Collects the hits of a file; take() sorts them by place.
class FileScan {
 public:
  /// `ranks`: one process for each NPU replaces DataParallel, so some names are also replaced by names of npu_distributed.py.
  FileScan(const Facts& facts, const SourceFile& file, const IsLocalModule& is_local, bool ranks = false)
      : facts_(facts), file_(file), is_local_(is_local), ranks_(ranks) {}

  const Facts& facts() const { return facts_; }
  std::string_view text() const { return file_.text; }
  const SourceFile& file() const { return file_; }
  const IsLocalModule& is_local() const { return is_local_; }
  bool ranks() const { return ranks_; }

  void add(const Pattern& row, uint32_t begin, uint32_t length, std::vector<Edit> edits = {});
  void add(std::string_view rule, uint32_t begin, uint32_t length, std::vector<Edit> edits = {});
  void add(const Library& library, uint32_t begin, uint32_t length);
  void add(Hit hit) { hits_.push_back(std::move(hit)); }
  /// Adds a finding for a text that consists of a device, a backend, a list of these, or a CUDA tensor type. If `editable` is false, the
  /// finding has no edit. Returns false for any other text.
  bool add_device_text(std::string_view body, uint32_t at, bool editable = true);
  bool is_device_text(std::string_view body) const;
  bool add_environment(std::string_view name, uint32_t at);
  /// Whether an added edit names the device npu.
  bool has_device_edits() const;
  /// Returns the position of the first added edit that names npu_distributed.py; UINT32_MAX if there is none.
  uint32_t rank_edits_begin() const;
  /// Whether all added edits are in this range, except edits of environment variables (rule cuda-env).
  bool edits_lie_in(uint32_t begin, uint32_t end) const;

  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;
  /// Drops the edits in code that already supports NPUs, and assigns the rule serves-npu to the hits that had them, and to hits without an
  /// edit of the rules cuda-env, device-key, device-list and own-cuda-method. Other hits without an edit keep their rule. `variables` has
  /// the ranges for CUDA's environment variables, `ranges` those for all other hits, since a function that accepts any accelerator may
  /// still choose it by CUDA_VISIBLE_DEVICES.
  void leave(const Ranges& ranges, const Ranges& variables);
  FileMarks marks;

  std::vector<Hit> take();

 private:
  const Facts& facts_;
  const SourceFile& file_;
  const IsLocalModule& is_local_;
  bool ranks_;
  std::vector<Hit> hits_;
};

/// The name of the module npu_distributed.py in edits.
inline constexpr std::string_view kRankModule = "npu_distributed";

/// Code inside a file of another language: cells of notebooks, texts of `python -c`, here-documents. The code is stored decoded, with the
/// position in the file of each of its bytes.
class EmbeddedCode {
 public:
  void add(char decoded, size_t begin, size_t end) {
    code_ += decoded;
    places_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
  /// Adds bytes that are not encoded.
  void add(std::string_view text, size_t begin) {
    for (const char c : text) add(c, begin, begin + 1), ++begin;
  }
  const std::string& code() const { return code_; }
  /// Returns where byte `i` of the code begins and ends in the file.
  std::pair<size_t, size_t> place(size_t i) const { return {places_[i].begin, places_[i].end}; }

  /// Encodes the text of an edit for the file.
  using Encode = std::string (*)(std::string_view);
  /// Scans the code as Python and reports findings at their places in the file. Edits of text that is not contiguous are omitted.
  void scan_as_python(FileScan& scan, Encode encode) const;

 private:
  struct Place {
    uint32_t begin, end;
  };
  bool in_one_piece(const Edit& edit) const;

  std::string code_;
  std::vector<Place> places_;
};

void scan_python(FileScan& scan);
void scan_cpp(FileScan& scan);
void scan_cmake(FileScan& scan);
void scan_shell(FileScan& scan);
void scan_notebook(FileScan& scan);
void scan_yaml(FileScan& scan);
void scan_json(FileScan& scan);
void scan_requirements(FileScan& scan);
void scan_toml(FileScan& scan);
void scan_conda(FileScan& scan);
/// Scans one line of a requirements file, or one text of install_requires, that begins at `at`.
void scan_requirement(FileScan& scan, std::string_view line, uint32_t at);

/// Returns all hits of a file, sorted by place. Edits that overlap or span lines are dropped. `ranks`: see FileScan.
std::vector<Hit> scan_file(const Facts& facts, const SourceFile& file, const IsLocalModule& is_local, bool ranks = false,
                           FileMarks* marks = nullptr);

/// Returns the text of a hit after its edits. If an edit only inserts text or is outside the hit, returns only the new texts.
std::string replacement_of(std::string_view text, const Hit& hit);

/// Applies the edits of all hits, which must be sorted.
std::string edited(std::string_view text, const std::vector<Hit>& hits);

}  // namespace npu_train::detail::scan
