/// Folders with several files: temporaries of killed processes, atomic removal, links.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace npu_train {

/// Removes temporaries that killed processes left in `folder`: those of ended processes of this machine; others after a day. If
/// `mine(name)` is true (`name` is that of the file or folder being written), only the caller may write it now, because it holds the lock
/// of the folder (FolderLock) and is not writing yet: such temporaries are removed whatever process made them. Returns their number.
int remove_leftovers(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& mine);

/// Removes a folder with its content. A process that is killed during this leaves a temporary, which remove_leftovers() removes, and never
/// a partial folder under its name. Error(Checkpoint) if it cannot be removed.
void remove_folder(const std::filesystem::path& folder);

/// Creates the symbolic link `path`, or redirects it in one step. Error(Checkpoint) if the file system refuses.
void set_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace npu_train
