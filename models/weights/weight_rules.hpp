// Names that a library gives to the weights of a network, as rules for both directions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

// A torchvision name and the corresponding name in another library. Wildcards: # is a number, @ a number that is one higher in
// torchvision's name, * the rest of the name.
struct NameRule {
  std::string ours;
  std::string theirs;
  bool transposed = false;  // the other library stores the matrix as [in, out]
  bool above = false;       // the other name is outside of the base prefix
  bool part = false;        // only some of these networks have this part, and ours only with an option
};

struct Naming {
  std::vector<std::string> libraries;      // libraries that use this naming, the usual one first
  std::string base;                        // prefix of all names except the head's; files of a network without a head do not have it
  std::vector<NameRule> rules;             // rules, of which the first two occur in every file of the family
  NameRule head;                           // rule for the head; empty if the head is not a separate layer
  bool splits_projections = false;         // the library stores three projections for query, key and value instead of one
  std::string tied = {};                   // name of the tensor that is also the head in networks without a separate head
  std::vector<std::string> unneeded = {};  // patterns of block tensors that follow from the options, such as masks
  std::vector<std::string> foreign = {};   // patterns of tensors outside of blocks that our network never has, and that change the outputs

  // Translate a name of this naming to torchvision's, and back; "" if it is unknown.
  std::string ours(std::string_view name) const;
  std::string theirs(std::string_view name) const;
  // Returns whether the matrix with that name is the transpose of ours.
  bool transposes(std::string_view theirs) const;
  // Returns whether the file's network computes with this tensor, which our network does not have. True for tensors of blocks that are not
  // `unneeded`, for optional parts of the network, and for `foreign` tensors.
  bool computes_with(std::string_view theirs) const;
  // Returns how many of `names` belong to this naming; 0 unless the first two rules match.
  size_t matches(const std::vector<std::string>& names) const;
};

// Returns the naming of our own network, which has the same tensors as the other library's.
Naming own_naming(Naming theirs);

struct ModelFamily;

// Removes prefixes of wrappers and checkpoints from `name`, one after the other, until `known(name)` is true. Calls removed(prefix) for
// each.
template <class Known, class Removed>
std::string without_wrappers(std::string name, const Known& known, const Removed& removed) {
  static constexpr const char* prefixes[] = {"module.", "model.", "_orig_mod.", "state_dict.", "model_state_dict.", "net."};
  for (bool again = true; again && !known(name);) {
    again = false;
    for (const std::string_view prefix : prefixes) {
      if (!name.starts_with(prefix)) continue;
      name.erase(0, prefix.size());
      removed(std::string(prefix));
      again = true;
      break;
    }
  }
  return name;
}

// A recognised naming, and its family; nullptr if none was recognised.
struct KnownNaming {
  const ModelFamily* family = nullptr;
  const Naming* naming = nullptr;
};
KnownNaming known_naming(const std::vector<std::string>& names);

}  // namespace npu_train::detail
