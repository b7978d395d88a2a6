/// Folders with several files: atomic removal, links.
#pragma once

#include <filesystem>

namespace npu_train {

/// Removes a folder with its content. If the process is killed meanwhile, a temporary folder may remain for remove_leftovers(), but never a
/// partial folder under its name. Error(Checkpoint) if it cannot be removed.
void remove_folder(const std::filesystem::path& folder);

/// Creates the symbolic link `path`, or redirects it in one step. Error(Checkpoint) on failure.
void set_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace npu_train
