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

// Accepts text in any encoding that preserves ASCII, but not content with zero bytes or many control characters.
bool is_text(std::string_view content) {
  constexpr size_t kLooked = 8192;
  if (content.find('\0') != std::string_view::npos) return false;
  const auto start = content.substr(0, kLooked);
  const auto odd =
      std::count_if(start.begin(), start.end(), [](char c) { return (c >= 0 && c < 0x08) || (c > 0x0D && c < 0x20 && c != 0x1B); });
  return static_cast<size_t>(odd) * 20 <= start.size();
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
