#include "models/blocks/host_memory.hpp"

#include <string>

#include "npu_train/base/file_backed_memory.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {

void check_host_memory(const char* network, int64_t parameters) {
  constexpr int64_t kSmall = int64_t{1} << 28;  // smaller networks are not checked, because a check reads files
  if (parameters < kSmall) return;
  const auto* files = FileBackedMemory::current();
  const int64_t needed = 4 * parameters, available = files != nullptr ? files->room() : free_host_bytes();
  if (needed <= available) return;
  throw Error(ErrorKind::OutOfMemory, network,
              str_cat(with_commas(parameters), " parameters in fp32 need ", human_bytes(static_cast<double>(needed)), ", and ",
                      human_bytes(static_cast<double>(available)), " of this host are free",
                      files != nullptr ? ", its memory and the disk of " + files->folder() + " together" : std::string()),
              files != nullptr ? "set TMPDIR to a folder of a larger disk, or use fewer layers"
                               : "use a host with more memory, or fewer layers: memory and FLOPs grow by the same amount with each "
                                 "(docs/language.md); or several ranks with trainer.strategy=zero3, which make the model on disk "
                                 "and keep a part of it each (docs/distributed.md)");
}

}  // namespace npu_train::detail
