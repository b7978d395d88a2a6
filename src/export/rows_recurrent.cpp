// Recurrent layers.
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "export/rows.hpp"

namespace npu_train::onnx {
namespace {

// A kind of cell: its ONNX operator, and libtorch's gate numbers in ONNX's order.
struct Cell {
  const char* op;
  std::vector<int64_t> gates;
  size_t states;  // number of states; 1: h; 2: h and c
};
const Cell kLstm{"LSTM", {0, 3, 1, 2}, 2};  // gates in libtorch: i f g o; in ONNX: i o f c
const Cell kGru{"GRU", {1, 0, 2}, 1};       // gates in libtorch: r z n; in ONNX: z r h

// Arguments: lstm.input(x, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional, batch_first); gru.input has a single
// state, h.
class Recurrent {
 public:
  Recurrent(Call& call, const Cell& cell) : c(call), cell_(cell), x_count_(1 + cell.states) {
    if (c.op().op.schema().overload_name() != "input") c.to.refuse("has a packed sequence", "pass a padded batch");
    layers_ = c.integer(4);
    biases_ = c.flag(3);
    if (c.flag(6) && c.number(5) > 0) c.to.refuse("is in training mode", "call eval() on the module");
    directions_ = c.flag(7) ? 2 : 1;
    per_direction_ = biases_ ? 4 : 2;
    if (c.rank() != 3) c.to.refuse("has an input without a batch", "give it a batch of one: x.unsqueeze(0)");
    if (static_cast<int64_t>(c.op().reads.size() - x_count_) != layers_ * directions_ * per_direction_)
      c.to.refuse("has a projection (proj_size)", "use a linear layer after it");
  }

  void lower() {
    const bool batch_first = c.flag(8);
    std::string x = batch_first ? swapped(c.input(0)) : c.input(0);
    std::vector<Names> last(cell_.states);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const auto outputs = c.to.nodes(cell_.op, inputs(x, layer), 1 + cell_.states, attributes());
      // Reorders [steps, directions, batch, hidden] to [steps, batch, directions * hidden].
      x = c.to.node("Reshape", {c.to.node("Transpose", {outputs[0]}, {{"perm", Ints{0, 2, 1, 3}}}), c.to.ints({0, 0, -1})});
      for (size_t s = 0; s < cell_.states; ++s) last[s].push_back(outputs[1 + s]);
    }
    c.give(batch_first ? swapped(x) : x, 0);
    for (size_t s = 0; s < cell_.states; ++s)
      c.give(layers_ == 1 ? last[s][0] : c.to.node("Concat", last[s], {{"axis", int64_t{0}}}), 1 + s);
  }

 private:
  std::string swapped(const std::string& x) { return c.to.node("Transpose", {x}, {{"perm", Ints{1, 0, 2}}}); }

  Attributes attributes() const {
    Attributes out{{"hidden_size", weight(0, 0, 1).size(1)}, {"direction", std::string(directions_ == 2 ? "bidirectional" : "forward")}};
    if (cell_.states == 1) out.emplace_back("linear_before_reset", int64_t{1});
    return out;
  }

  Names inputs(const std::string& x, int64_t layer) {
    Names out{x, constant(layer, 0), constant(layer, 1), biases_ ? bias(layer) : std::string(), ""};
    for (size_t s = 0; s < cell_.states; ++s) out.push_back(initial(s, layer));
    return out;
  }

  std::string initial(size_t state, int64_t layer) {
    const auto given = c.to.name_of(c.op().reads[1 + state]);
    if (layers_ == 1) return given;
    return c.to.node("Slice", {given, c.to.ints({layer * directions_}), c.to.ints({(layer + 1) * directions_}), c.to.ints({0})});
  }

  // Returns the recorded value of a parameter: `which` is 0 for the weight of the input, 1 for the weight of the state, 2 and 3 for their
  // biases.
  size_t value(int64_t layer, int64_t direction, int64_t which) const {
    return c.op().reads[x_count_ + static_cast<size_t>((layer * directions_ + direction) * per_direction_ + which)];
  }
  const at::Tensor& weight(int64_t layer, int64_t direction, int64_t which) const {
    return c.to.records().tensor(value(layer, direction, which));
  }

  at::Tensor in_onnx_order(int64_t layer, int64_t direction, int64_t which) const {
    const auto gates = weight(layer, direction, which).chunk(static_cast<int64_t>(cell_.gates.size()));
    std::vector<at::Tensor> out;
    for (const auto gate : cell_.gates) out.push_back(gates[static_cast<size_t>(gate)]);
    return at::cat(out);
  }

  std::string named(int64_t layer, int64_t which) const {
    const auto& name = c.to.records().graph().values()[value(layer, 0, which)].name;
    return name.empty() ? "weight" : name;
  }

  std::string constant(int64_t layer, int64_t which) {
    std::vector<at::Tensor> parts;
    for (int64_t d = 0; d < directions_; ++d) {
      if (!c.to.is_constant(value(layer, d, which))) c.to.refuse("has weights that are computed", "use weights that are parameters");
      parts.push_back(in_onnx_order(layer, d, which));
    }
    return c.to.constant(named(layer, which) + "_onnx", at::stack(parts));
  }

  std::string bias(int64_t layer) {
    std::vector<at::Tensor> parts;
    for (int64_t d = 0; d < directions_; ++d) parts.push_back(at::cat({in_onnx_order(layer, d, 2), in_onnx_order(layer, d, 3)}));
    return c.to.constant(named(layer, 2) + "_onnx", at::stack(parts));
  }

  Call& c;
  const Cell& cell_;
  size_t x_count_;  // number of tensors before the weights
  int64_t layers_ = 1, directions_ = 1, per_direction_ = 4;
  bool biases_ = true;
};

}  // namespace

const std::vector<Row>& recurrent_rows() {
  static const std::vector<Row> rows{
      {"lstm", 15, 20, [](Call& c) { Recurrent(c, kLstm).lower(); }},
      {"gru", 15, 20, [](Call& c) { Recurrent(c, kGru).lower(); }},
  };
  return rows;
}

}  // namespace npu_train::onnx
