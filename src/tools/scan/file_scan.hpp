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

/// Collects hits, which are finally sorted by place.
class FileScan {
 public:
  FileScan(const Facts& facts, const SourceFile& file) : facts_(facts), file_(file) {}

  const Facts& facts() const { return facts_; }
  std::string_view text() const { return file_.text; }
  const SourceFile& file() const { return file_; }

  void add(const Pattern& row, uint32_t begin, uint32_t length, std::vector<Edit> edits = {});
  void add(const Library& library, uint32_t begin, uint32_t length);
  void add(Hit hit) { hits_.push_back(std::move(hit)); }
  /// Adds a finding for a text that consists of a device, a backend, the name of an environment variable or a CUDA tensor type. `editable`
  /// false: without an edit. Returns false for any other text.
  bool add_device_text(std::string_view body, uint32_t at, bool editable = true);
  bool is_device_text(std::string_view body) const;
  bool add_environment(std::string_view name, uint32_t at);
  /// Whether an added edit names the device npu.
  bool has_device_edits() const;
  /// Whether all such edits are in this range.
  bool edits_lie_in(uint32_t begin, uint32_t end) const;

  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;
  /// Drops the edits in these ranges, whose code already supports NPUs (rule serves-npu). Ranges in `variables` apply to CUDA's environment
  /// variables, the others to everything else: a function that accepts any accelerator may still choose it by CUDA_VISIBLE_DEVICES.
  void leave(const Ranges& ranges, const Ranges& variables);
  /// Position of the first use of an NPU; -1: none.
  int64_t first_npu_use = -1;

  std::vector<Hit> take();

 private:
  const Facts& facts_;
  const SourceFile& file_;
  std::vector<Hit> hits_;
};

/// Whether `import NAME` in this file refers to a module of the project itself.
using IsLocalModule = std::function<bool(std::string_view name)>;

void scan_python(FileScan& scan, const IsLocalModule& is_local);
void scan_cpp(FileScan& scan);
void scan_cmake(FileScan& scan);
void scan_shell(FileScan& scan, const IsLocalModule& is_local);
void scan_notebook(FileScan& scan, const IsLocalModule& is_local);
void scan_yaml(FileScan& scan);
void scan_json(FileScan& scan);
void scan_requirements(FileScan& scan);
void scan_toml(FileScan& scan);
void scan_conda(FileScan& scan);
/// Scans one line of a requirements file, or one text of install_requires, that begins at `at`.
void scan_requirement(FileScan& scan, std::string_view line, uint32_t at);

/// Returns all hits of a file by place, without edits that overlap or span lines. `first_npu_use`: receives the position of the first code
/// for NPUs; -1: none.
std::vector<Hit> scan_file(const Facts& facts, const SourceFile& file, const IsLocalModule& is_local, int64_t* first_npu_use = nullptr);

/// Returns the text at the place of a hit after its edits; for an insertion elsewhere, only the inserted text.
std::string replacement_of(std::string_view text, const Hit& hit);

/// Applies the edits of all hits, which must be sorted.
std::string edited(std::string_view text, const std::vector<Hit>& hits);

}  // namespace npu_train::detail::scan
