// Lists of files in which one pattern names many files, in the notation of WebDataset and of shells.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace npu_train::detail {

// Expands braces as bash does: "a{0..2}.tar" becomes a0.tar, a1.tar and a2.tar; the numbers of "{08..11}" have two digits each; "{x,y}"
// becomes its parts, which may have braces of their own. Error(Usage) with `key` for braces that do not match or have neither of these
// forms, and for more than a million names.
std::vector<std::string> expand_braces(const std::string& pattern, const std::string& key);

// Returns the archives that `patterns` name, in their order: files, or folders, whose .tar files are sorted by name. Names are relative to
// `root`. Error(Usage) with `key` if a file is listed twice; Error(Data) if an archive is missing, or a folder has no .tar files.
std::vector<std::filesystem::path> shard_files(const std::string& root, const std::vector<std::string>& patterns, const std::string& key);

}  // namespace npu_train::detail
