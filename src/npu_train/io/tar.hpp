/// The members of a tar archive: ustar (POSIX.1-1988), GNU's long names, and pax (POSIX.1-2001). We implement it ourselves, because
/// libarchive reads archives as streams and provides no offsets from which to continue. Nothing is extracted, so the name of a member is
/// never used as a path. Compressed archives and sparse files are rejected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/io/file.hpp"

namespace npu_train {

/// A regular file in an archive.
struct TarMember {
  std::string name;
  uint64_t begin = 0;   ///< offset of its first header
  uint64_t offset = 0;  ///< offset of its content
  uint64_t size = 0;
};

/// Returns the first regular file whose headers begin at or after `position`, and moves `position` behind it. `position` is 0, the value
/// after an earlier call, or `TarMember::begin`. Folders, links and devices are skipped. nullopt at the end of the archive.
/// Error(file.kind()), with the offset, if the file is not an archive, is damaged, claims a size beyond the end of the file, lacks the
/// zeros that end an archive (it is truncated), or has more data after these zeros (which would not be read).
std::optional<TarMember> next_tar_member(const ReadableFile& file, uint64_t& position);

}  // namespace npu_train
