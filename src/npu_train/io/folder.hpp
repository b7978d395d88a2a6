/// Folders with several files: temporary files of killed processes, atomic removal, links.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace npu_train {

/// Removes temporary files and folders that killed processes have left in `folder`: at once if their process ran on this machine and has
/// ended, others after a day. Those whose final name satisfies `mine(name)` are removed in any case: only the caller may write that name,
/// because it holds the folder's lock (FolderLock), and it is not writing it yet. Returns the number that it removed.
int remove_leftovers(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& mine);

/// Removes a folder with its content. If the process is killed meanwhile, a temporary folder may remain for remove_leftovers(), but never a
/// partial folder under its name. Error(Checkpoint) if it cannot be removed.
void remove_folder(const std::filesystem::path& folder);

/// Creates the symbolic link `path`, or redirects it in one step. Error(Checkpoint) on failure.
void set_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace npu_train
