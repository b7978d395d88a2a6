// The names of the weights of a network in a library, as rules in both directions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

// A name of torchvision's and the same name of another library. # is a number, @ a number that is one higher in torchvision's name, * the
// rest of the name.
struct NameRule {
  std::string ours;
  std::string theirs;
  bool transposed = false;  // their matrix is [in, out]
  bool above = false;       // their name has no base
  bool part = false;        // of a part that some of these networks have, and ours has with an option
};

struct Naming {
  std::vector<std::string> libraries;      // those that share it, the usual one first
  std::string base;                        // prefix of the names but the head's, which files of a network without a head do not have
  std::vector<NameRule> rules;             // the first two occur in every file of the family
  NameRule head;                           // empty for a network whose head is no layer of its own
  bool splits_projections = false;         // writes three projections of query, key and value instead of one
  std::string tied = {};                   // the tensor that is the head too in networks without one of their own
  std::vector<std::string> unneeded = {};  // patterns of tensors of blocks that follow from the options, such as masks
  std::vector<std::string> foreign = {};   // patterns of tensors outside of blocks that ours never has, and that change the outputs

  // The name of torchvision's for one of this naming, "" if there is none; and the reverse.
  std::string ours(std::string_view name) const;
  std::string theirs(std::string_view name) const;
  // Whether the matrix of that name is the transpose of ours.
  bool transposes(std::string_view theirs) const;
  // Whether the network of a file computes with a tensor of that name, which ours does not have: one of a block, or a foreign one.
  bool computes_with(std::string_view theirs) const;
  // Names of `names` that belong to this naming; 0 unless the first two rules apply.
  size_t matches(const std::vector<std::string>& names) const;
};

// The naming of our own network, which has the same tensors as that of another library.
Naming own_naming(Naming theirs);

struct ModelFamily;

// `name` without the prefixes of wrappers and of checkpoints, in the order in which they are removed, until `known(name)`.
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

// A naming that was recognised; nullptr if none was.
struct KnownNaming {
  const ModelFamily* family = nullptr;
  const Naming* naming = nullptr;
};
KnownNaming known_naming(const std::vector<std::string>& names);

}  // namespace npu_train::detail
