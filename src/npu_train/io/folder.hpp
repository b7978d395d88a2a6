/// Folders with several files: temporaries of killed processes, atomic removal, links.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace npu_train {

/// Removes temporaries that killed processes left in `folder`: those of ended processes of this machine at once, others after a day.
/// Temporaries whose final name satisfies `mine(name)` are removed whatever process made them: only the caller may write that name, since
/// it holds the folder's lock (FolderLock), and it is not writing it yet. Returns the number of removed ones.
int remove_leftovers(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& mine);

/// Removes a folder with its content. If the process is killed meanwhile, a temporary remains for remove_leftovers(), but never a partial
/// folder under its name. Error(Checkpoint) if it cannot be removed.
void remove_folder(const std::filesystem::path& folder);

/// Creates the symbolic link `path`, or redirects it in one step. Error(Checkpoint) on failure.
void set_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace npu_train
