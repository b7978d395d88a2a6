// Records one step of a run as entries of a dump: calls of layers and operators, and their gradients.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "tools/align/gradient_shares.hpp"
#include "tools/align/leaf_maker.hpp"

namespace npu_train::detail {

// Decides which calls a dump contains.
class DumpFilter {
 public:
  explicit DumpFilter(const DumpOptions& options);
  bool modules() const { return options_.level == "module" || options_.level == "mix"; }
  bool operators() const { return options_.level == "op" || options_.level == "mix"; }
  bool named_values() const { return options_.level == "debug"; }
  // Decides whether the call is dumped. `base` is its name without direction and number: "Module.conv1.Conv2d". enter() also updates
  // whether the scope is open, so it must be called exactly once for each call.
  bool enter(const std::string& base);
  void leave(const std::string& base);
  bool has(const std::string& base) const;
  // Returns a message for each name in `list` and `scope` that no call has matched so far: "dump.list: 'haed' matches no layer or operator
  // at dump.level=module; did you mean 'head'?".
  std::vector<std::string> unmatched() const;
  // Whether `data_mode` selects the word. If it contains no word of the group, the complete group is selected, unless all words of
  // `data_mode` are parameters_grad or optimizer; then nothing of the group is selected.
  bool direction(const char* word) const { return open(word, {"forward", "backward"}); }
  bool side(const char* word) const { return open(word, {"input", "output"}); }
  bool extra(const char* word) const;

 private:
  bool open(const std::string& word, const std::vector<std::string>& group) const;
  bool only_extras() const;
  void note(const std::string& base) const;
  std::string nearest(const std::string& pattern) const;
  const DumpOptions& options_;
  std::vector<std::string> scope_, list_;
  mutable std::vector<bool> fits_, scope_fits_;  // for each name in list_ and scope_, whether a call has matched it
  mutable std::set<std::string> seen_;           // base names, for hints
  bool scope_open_ = true;
};

class DumpRecorder : public OpListener, public std::enable_shared_from_this<DumpRecorder> {
 public:
  // `folder`: the folder of the step, which the recorder owns. References are borrowed. `saturates`: see LeafMaker.
  DumpRecorder(const DumpOptions& options, const DumpedModel& model, TensorSink& sink, std::unique_ptr<DumpFolder> folder, bool saturates);

  void op_begins(const SeenOp& op) override;
  void op_ended(const SeenOp& op) override;
  void layer_begins(const SeenLayer& layer) override;
  void layer_ended(const SeenLayer& layer) override;

  // Records a value that the program names. In the forward pass, also records the value's gradient, unless the value is a leaf.
  void named_value(const std::string& name, const at::Tensor& value);
  void begin_forward();
  void end_forward();
  void loss(const at::Tensor& loss);
  // Writes the gradients that have arrived so far; `all`: no more will arrive.
  void end_backward(bool all);
  void parameter_gradients(const ParameterSet& parameters);
  void optimizer(const Optimizer& optimizer, const ParameterSet& parameters, double loss_scale);
  void close();
  // Whether no requested entry has been dumped yet: no layer, no operator and, if `data_mode` names the optimizer, no optimizer.
  bool empty() const { return empty_; }
  std::vector<std::string> unmatched() const { return filter_.unmatched(); }

 private:
  // A call of a layer. The layer is either declared or known by its parameters. In the second case, the next operator may belong to the
  // same call.
  struct OpenCall {
    std::string owner, base, name;  // owner: path of the layer; base: "Module.conv1.Conv2d"; name: base with direction and number
    bool wanted = false, overflowed = false;
    std::set<std::string> used;  // names of the parameters that the call has used
    DumpEntry entry;
    std::vector<at::Tensor> inputs, outputs, casts;  // casts: copies of outputs in another dtype
    size_t backward = kNone;
    CallGraph graph{};
    bool gave(const at::Tensor& value) const;
  };
  // The gradient that one of a call's inputs gets from this call.
  struct Share {
    at::Tensor sum;
    size_t edges = 0, came = 0;
  };
  // The gradients of one call.
  struct Backward {
    DumpEntry entry;
    std::vector<DumpNode> of_outputs, of_inputs;
    std::vector<Share> shares;  // one for each input
    size_t missing = 0, watched_outputs = 0;
    int generation = 0;  // number of times that the outputs were set; each further operator of the layer sets them again
    bool came = false, overflowed = false;
  };
  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::string owner_of(const std::string& parameter) const;
  std::string base_of(const std::string& owner, const std::string& op) const;
  std::string around() const;
  void module_op(const SeenOp& op);
  void plain_op(const SeenOp& op);
  void close_call();
  // `begin`: see CallGraph.
  OpenCall open(const std::string& owner, const std::string& op, std::vector<at::Tensor> inputs, uint64_t begin);
  void set_outputs(OpenCall& call, std::vector<at::Tensor> outputs);
  void finish(OpenCall& call);
  void keep_overflow(OpenCall& call);
  int64_t next_number(const std::string& base) { return calls_[base]++; }
  std::string name_of_value(const std::string& base);
  void emit_value(const std::string& name, const at::Tensor& value, const char* phase);
  DumpNode tensors(const std::vector<at::Tensor>& values, const std::string& name, bool keep = false);
  static std::vector<at::Tensor> data_inputs(const SeenOp& op);
  // Returns an argument of an operator, with the name of the parameter if the argument is one.
  DumpNode argument(const SeenOp& op, const c10::IValue& value, const std::string& name, bool keep);
  DumpNode parameters_of(const SeenOp& op, const OpenCall& call);
  // Returns the parameters that a declared layer owns itself.
  DumpNode own_parameters(const OpenCall& call);
  // Whether the call is dumped. With task overflow_check, only calls with an overflow are dumped.
  bool interesting(const DumpNode& outputs) { return options_.task != "overflow_check" || leaves_.overflowed(outputs); }
  void emit(DumpEntry entry);
  void write_pending();
  size_t add_backward(const std::string& name, const std::string& parent, size_t inputs);
  void watch_outputs(size_t index, const std::vector<at::Tensor>& outputs, CallGraph& graph);
  bool watch(const at::Tensor& value, size_t index, size_t position);
  void gradient_came(size_t index, size_t position, int generation, const at::Tensor& gradient);
  void share_came(size_t index, size_t position, const at::Tensor& gradient);
  DumpNode gradient_node(Backward& backward, const std::string& side, size_t position, const at::Tensor& gradient);
  // Counts a gradient. `whole`: the gradient is complete, and not one part of a sum.
  void note_arrival(size_t index, bool whole = true);
  void write_backward(Backward& backward);

  const DumpOptions& options_;
  const DumpedModel& model_;
  DumpFilter filter_;
  std::unique_ptr<DumpFolder> folder_;
  LeafMaker leaves_;
  std::recursive_mutex mutex_;  // hooks run in autograd's threads
  bool closed_ = false;
  bool forward_over_ = false;      // whether the loss was recorded
  std::set<std::string> named_;    // names of named values
  std::set<std::string> arrived_;  // names of the named values' gradients that have arrived
  bool empty_ = true;

  std::map<std::string, bool> is_leaf_;  // for each layer that owns parameters, whether no other layer is inside it
  std::map<std::string, int64_t> calls_;
  std::set<std::string> wanted_;  // base names of the wanted calls
  std::optional<OpenCall> call_;
  std::vector<OpenCall> layers_;
  DumpNode before_;     // first input of an in-place operator, before the operator changes it
  uint64_t begin_ = 0;  // start of the current operator, see CallGraph
  std::deque<Backward> backwards_;
  std::vector<size_t> order_;      // indices into backwards_, in order of arrival
  size_t written_ = 0;             // number of elements of order_ whose gradients were written
  std::deque<DumpEntry> pending_;  // entries whose statistics are still on the device
};

}  // namespace npu_train::detail
