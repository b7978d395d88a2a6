// Decides, by the type of its file system, whether a disk may be shared with other machines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace npu_train::detail {

// Returns whether a disk with this file system may be shared. `type` is statfs::f_type (statfs(2), linux/magic.h). Types that are not known
// to be local count as shared.
inline bool is_shared_disk(uint32_t type) {
  constexpr uint32_t kOwn[] = {0xEF53 /* ext */,         0x58465342 /* xfs */,  0x9123683E /* btrfs */, 0x01021994 /* tmpfs */,
                               0x794C7630 /* overlay */, 0xF2F52010 /* f2fs */, 0x2FC12FC1 /* zfs */,   0x858458F6 /* ramfs */};
  return std::find(std::begin(kOwn), std::end(kOwn), type) == std::end(kOwn);
}

}  // namespace npu_train::detail
