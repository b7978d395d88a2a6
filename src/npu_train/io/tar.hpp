/// The members of a tar archive: ustar (POSIX.1-1988), GNU's long names, and pax (POSIX.1-2001). Own implementation, because what reads
/// archives elsewhere (libarchive) reads them as streams and has no offsets from which to continue. Nothing is extracted, so that a name of
/// an archive is never a path. Compressed archives and sparse files are rejected.
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

/// Returns the first regular file whose headers begin at or after `position`, and moves `position` behind it: 0, the value after an earlier
/// call, or `TarMember::begin`. Folders, links and devices are passed over. nullopt at the end of the archive. Error(file.kind()) with the
/// offset for what is not an archive, is damaged, claims a size beyond the end of the file, or ends without the zeros that end an archive
/// (it is truncated); and if more data follow these zeros, which would not be read.
std::optional<TarMember> next_tar_member(const ReadableFile& file, uint64_t& position);

}  // namespace npu_train
