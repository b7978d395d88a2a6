#include "tools/scan/walk.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail::scan {
namespace fs = std::filesystem;
namespace {

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

}  // namespace

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

}  // namespace npu_train::detail::scan
