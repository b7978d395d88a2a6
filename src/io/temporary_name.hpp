/// Helpers shared by AtomicFile and AtomicDirectory.
#pragma once

#include <filesystem>

namespace npu_train::detail {

/// Returns a new name in the folder of `path`: ".<name>.tmp-<machine>-<process>-<number>".
std::filesystem::path temporary_beside(const std::filesystem::path& path);

std::filesystem::path folder_of(const std::filesystem::path& path);

/// Synchronises to the disk. Returns 0 or errno; 0 also on file systems that cannot synchronise.
int sync_descriptor(int fd);
void sync_folder(const std::filesystem::path& folder);

}  // namespace npu_train::detail
