#include "tools/scan/project.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail::scan {
namespace fs = std::filesystem;
namespace {

std::string_view folder_of_entry(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view name_of_entry(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Whether the content is text, in any encoding that preserves ASCII: without zero bytes, and with few control characters.
bool is_text(std::string_view content) {
  constexpr size_t kLooked = 8192;
  if (content.find('\0') != std::string_view::npos) return false;
  const auto start = content.substr(0, kLooked);
  const auto odd =
      std::count_if(start.begin(), start.end(), [](char c) { return (c >= 0 && c < 0x08) || (c > 0x0D && c < 0x20 && c != 0x1B); });
  return static_cast<size_t>(odd) * 20 <= start.size();
}

bool is_skipped_folder(const fs::path& folder, std::string_view name) {
  static constexpr std::string_view kNames[] = {".git",        ".hg",           ".svn",        "build",         "node_modules",
                                                "__pycache__", ".venv",         "venv",        ".tox",          ".nox",
                                                ".eggs",       ".mypy_cache",   ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints",
                                                ".cache",      "site-packages", ".idea",       ".vscode"};
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  if (name.starts_with("cmake-build") || name.ends_with(".egg-info") || name.ends_with(".dist-info")) return true;
  std::error_code ignored;
  return fs::exists(fs::symlink_status(folder / "pyvenv.cfg", ignored));
}

WalkEntry::Kind kind_of(const fs::file_status& status) {
  if (fs::is_symlink(status)) return WalkEntry::Kind::Link;
  if (fs::is_directory(status)) return WalkEntry::Kind::Folder;
  return fs::is_regular_file(status) ? WalkEntry::Kind::File : WalkEntry::Kind::Other;
}

bool may_be_script(std::string_view name) { return name.find('.') == std::string_view::npos; }

}  // namespace

fs::path source_folder(const fs::path& folder) {
  std::error_code error;
  check(fs::exists(folder, error), ErrorKind::Usage, "scan", folder.string(), ": does not exist; hint: give the folder of a project");
  check(fs::is_directory(folder, error), ErrorKind::Usage, "scan", folder.string(),
        ": is not a folder; hint: give the folder of a project");
  const auto resolved = fs::canonical(folder, error);
  check(!error, ErrorKind::Data, "scan", folder.string(), ": ", error.message());
  return resolved;
}

bool is_report(const fs::path& folder) {
  constexpr std::string_view kStart = "{\"format\":\"npu_train rewrite\"";
  std::error_code ignored;
  if (folder.filename() != kReportFolder || !fs::is_regular_file(fs::symlink_status(folder / kReportLog, ignored))) return false;
  try {
    const ReadableFile log(folder / kReportLog);
    return log.size() >= kStart.size() && log.read(0, kStart.size()) == kStart;
  } catch (const Error&) {
    return false;
  }
}

std::vector<WalkEntry> walk(const fs::path& folder, const WalkOptions& options, std::vector<std::string>& unreadable) {
  std::vector<WalkEntry> out;
  std::vector<std::pair<std::string, bool>> todo = {{"", false}};
  while (!todo.empty()) {
    const auto [inside, skipped] = std::move(todo.back());
    todo.pop_back();
    std::error_code error;
    const auto here = inside.empty() ? folder : folder / inside;
    fs::directory_iterator entries(here, error), end;
    for (; !error && entries != end; entries.increment(error)) {
      check(out.size() < options.max_entries, ErrorKind::Data, "scan", folder.string(), ": more than ",
            with_commas(static_cast<int64_t>(options.max_entries)), " files and folders; hint: choose a folder inside it");
      const auto name = entries->path().filename().string();
      std::error_code status_error;
      const auto status = entries->symlink_status(status_error);
      WalkEntry entry{.path = inside.empty() ? name : inside + "/" + name, .kind = kind_of(status), .skipped = skipped};
      if (status_error) {
        unreadable.push_back(entry.path + ": " + status_error.message());
        continue;
      }
      if (entry.kind == WalkEntry::Kind::File) {
        entry.bytes = entries->file_size(status_error);
      } else if (entry.kind == WalkEntry::Kind::Folder) {
        if (is_report(entries->path())) continue;
        entry.skipped = skipped || is_skipped_folder(entries->path(), name);
        if (!entry.skipped || options.into_skipped) todo.emplace_back(entry.path, entry.skipped);
      }
      out.push_back(std::move(entry));
    }
    if (error) unreadable.push_back((inside.empty() ? std::string(".") : inside) + ": " + error.message());
  }
  std::sort(out.begin(), out.end(), [](const WalkEntry& a, const WalkEntry& b) { return a.path < b.path; });
  return out;
}

LocalModules::LocalModules(const std::vector<WalkEntry>& entries, const std::string& root) {
  constexpr std::string_view kPackage = "/__init__.py";
  for (const auto& entry : entries) {
    if (entry.kind != WalkEntry::Kind::File) continue;
    const std::string_view path = entry.path;
    if (path == kPackage.substr(1)) modules_.insert(root);  // the folder is itself a package
    if (path.ends_with(kPackage)) {
      modules_.emplace(path.substr(0, path.size() - kPackage.size()));
    } else if (path.ends_with(".py")) {
      modules_.emplace(path.substr(0, path.size() - 3));
    }
  }
}

bool LocalModules::has(std::string_view folder, std::string_view name) const {
  return modules_.contains(folder.empty() ? std::string(name) : std::string(folder) + "/" + std::string(name));
}

bool LocalModules::is_local(std::string_view file, std::string_view name) const {
  return has("", name) || has("src", name) || has(folder_of_entry(file), name);
}

ReadResult read_source(const fs::path& root, const WalkEntry& entry, uint64_t max_bytes, SourceFile& out, std::string& why) {
  const auto name = name_of_entry(entry.path);
  out.language = language_of(name, name_of_entry(folder_of_entry(entry.path)), "");
  if (out.language == Language::None && !may_be_script(name)) return ReadResult::Other;
  try {
    const ReadableFile file(root / entry.path);
    if (out.language == Language::None) {
      constexpr uint64_t kFirstLine = 128;
      out.language = language_of(name, "", file.read(0, std::min(kFirstLine, file.size())));
      if (out.language == Language::None) return ReadResult::Other;
    }
    if (file.size() > max_bytes) {
      why = human_bytes(static_cast<double>(file.size())) + ", allowed: at most " + human_bytes(static_cast<double>(max_bytes));
      return ReadResult::TooLarge;
    }
    out.path = entry.path;
    out.text = file.read(0, file.size());
  } catch (const Error& error) {
    why = error.what();
    return ReadResult::Unreadable;
  }
  return is_text(out.text) ? ReadResult::Source : ReadResult::Binary;
}

}  // namespace npu_train::detail::scan
