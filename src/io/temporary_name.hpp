/// What AtomicFile and AtomicDirectory share.
#pragma once

#include <filesystem>

namespace npu_train::detail {

/// A new name in the folder of `path`: ".<name>.tmp-<machine>-<process>-<number>".
std::filesystem::path temporary_beside(const std::filesystem::path& path);

std::filesystem::path folder_of(const std::filesystem::path& path);

/// 0 or the errno; file systems that cannot do it are let pass.
int sync_descriptor(int fd);
void sync_folder(const std::filesystem::path& folder);

}  // namespace npu_train::detail
