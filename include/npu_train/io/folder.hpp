/// Folders that several files are kept in: what killed processes left there, removal that is never half done, links.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace npu_train {

/// Removes temporaries that killed processes left in `folder`: those of dead processes of this machine, others after a day. Where
/// `mine(name)` is true (`name` is that of the file or folder which was being written), only the caller may write it now, as it holds the
/// lock of the folder (FolderLock) and has not begun to write: these go whoever made them. Gives their number.
int remove_leftovers(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& mine);

/// Removes a folder with its content. A process that is killed on the way leaves a temporary, which remove_leftovers() removes, and never
/// a part of the folder under its name. Error(Checkpoint) when it cannot be removed.
void remove_folder(const std::filesystem::path& folder);

/// Makes the symbolic link `path`, or points it elsewhere in one step. Error(Checkpoint) when the file system refuses.
void set_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace npu_train
