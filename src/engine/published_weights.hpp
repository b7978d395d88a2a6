// Weights that a library publishes under a name: "torchvision://resnet50" or "torchvision://resnet50/IMAGENET1K_V1".
#pragma once

#include <filesystem>
#include <string>

namespace npu_train::detail {

struct PublishedWeights {
  std::string url;
  std::string file;    // name in the cache
  std::string sha256;  // first digits of the file's checksum
};

// Returns whether a path is such a name: it begins with a scheme.
bool is_published_name(const std::string& path);

// Returns the address of named weights. A name without its second part means torchvision's DEFAULT weights. Error(Usage) for a name that is
// not published (the message contains the nearest one), and for libraries whose weights are not fetched (the message contains the command
// that writes them to a file).
PublishedWeights published_weights(const std::string& name);

// Returns the cache that torch.hub also uses: $TORCH_HOME/hub/checkpoints, by default below ~/.cache/torch. Error(Data) without a home
// folder.
std::filesystem::path hub_cache();

// Returns the file of these weights in `cache`. Downloads it if it is missing (data/download.hpp); it appears complete and with the right
// checksum, or not at all. Error(Data) names the step that failed and the remedy.
std::filesystem::path cached_weights(const PublishedWeights& weights, const std::filesystem::path& cache);

}  // namespace npu_train::detail
