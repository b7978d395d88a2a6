"""Every operator of sim_cann's table against the CPU, through torch_npu: over dtypes, strides, broadcasts and empty tensors."""
import ctypes
import subprocess
import unittest

import environment

FLOATS, INTEGERS = ('float32', 'float16', 'bfloat16'), ('int32', 'int64')
ALL = FLOATS + INTEGERS + ('uint8', 'bool')
TOLERANCE = {'float32': 2e-5, 'float16': 4e-3, 'bfloat16': 3e-2}

UNARY = '''abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac isfinite isinf isneginf isposinf
log log10 log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sign signbit sin sinc sinh sqrt tan tanh trunc'''.split()
IN_PLACE = '''acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac log log10 log1p log2 logical_not neg reciprocal
relu round rsqrt sigmoid sin sinc sinh sqrt tan tanh trunc'''.split()
ACTIVATIONS = '''mish silu gelu hardsigmoid hardswish softplus logsigmoid elu celu leaky_relu hardtanh relu glu threshold prelu softmax log_softmax'''.split()
BINARY = '''add sub mul div floor_divide fmod remainder pow atan2 logaddexp logaddexp2 xlogy maximum minimum gcd eq ne lt le gt ge logical_and logical_or
logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift isclose rsub'''.split()
SCALAR = 'add sub mul div floor_divide fmod remainder pow eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor rsub clamp_min clamp_max'.split()
BINARY_IN_PLACE = '''add sub mul div floor_divide fmod remainder pow atan2 eq ne lt le gt ge logical_and logical_or bitwise_and bitwise_xor clamp_min
clamp_max'''.split()
FOREACH = 'abs acos asin atan cos cosh erf erfc exp expm1 log log10 log1p log2 neg reciprocal sigmoid sign sin sinh sqrt tan tanh'.split()


def exported():
    symbols = subprocess.run(['nm', '-D', '--defined-only', environment.LIBRARIES / 'libopapi.so'], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in symbols.stdout.splitlines()}
    return {n for n in names if n.startswith('aclnn') and not n.endswith('GetWorkspaceSize')}


def called():
    calls = ctypes.CDLL('libascendcl.so').sim_cann_calls
    calls.restype = ctypes.c_char_p
    return {line.split()[0] for line in calls().decode().splitlines()}


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global torch, F
        import torch
        import torch.nn.functional as F
        import torch_npu  # noqa: F401

    def setUp(self):
        torch.manual_seed(1)

    def value(self, shape, dtype, low=0.1, high=0.9):
        """Values for which most functions are defined."""
        if dtype == 'bool':
            return torch.rand(shape) < 0.5
        if dtype in INTEGERS + ('uint8',):
            return torch.randint(1, 5, shape, dtype=getattr(torch, dtype))
        return (torch.rand(shape) * (high - low) + low).to(getattr(torch, dtype))

    def layouts(self, dtype, **limits):
        """Tensors that are contiguous, permuted, with steps and an offset, expanded, empty, and without dimensions."""
        x = self.value((4, 6, 2), dtype, **limits)
        return [x, x.permute(2, 0, 1), x[1:, ::2], x[:, :1].expand(4, 6, 2), x[:0], x[0, 0, 0]]

    def check(self, function, *tensors, tolerance=None, name=''):
        """Compares function(tensors) on the CPU and on the NPU, and the inputs that it changes. Returns False if the CPU cannot compute
        it."""
        here = [t.clone() if isinstance(t, torch.Tensor) else t for t in tensors]
        # Copies to the device with the same values and layout: the base of a view is copied, and the view is made there.
        there = [torch.as_strided(self.base(t).npu(), t.size(), t.stride(), t.storage_offset()) if isinstance(t, torch.Tensor) else t for t in tensors]
        try:
            expected = function(*here)
        except (RuntimeError, NotImplementedError, TypeError):
            return False
        got = function(*there)
        pairs = list(zip(self.flat(expected) + here, self.flat(got) + there))
        for want, have in pairs:
            if not isinstance(want, torch.Tensor):
                self.assertEqual(want, have, name)
                continue
            self.assertEqual(have.device.type, 'npu', name)
            have = have.cpu()
            self.assertEqual(want.shape, have.shape, name)
            if want.dtype != have.dtype and not all(t.is_floating_point() for t in here if isinstance(t, torch.Tensor)):
                return False  # torch_npu has other dtypes for some results of integers
            self.assertEqual(want.dtype, have.dtype, name)
            limit = tolerance or TOLERANCE.get(str(want.dtype)[6:], 0)
            torch.testing.assert_close(have, want, rtol=limit, atol=limit, equal_nan=True, msg=lambda m: f'{name}: {m}')
        return True

    @staticmethod
    def base(t):
        return t if t._base is None else t._base

    @staticmethod
    def flat(result):
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def check_all(self, names, call, dtypes=ALL, **limits):
        for name in names:
            compared = sum(self.check(lambda x: call(name, x), x, name=f'{name} {dtype} {tuple(x.shape)}')
                           for dtype in dtypes for x in self.layouts(dtype, **limits))
            self.assertGreater(compared, 0, name)

    def test_functions_of_one_tensor(self):
        self.check_all([n for n in UNARY if n != 'acosh'], lambda n, x: getattr(torch, n)(x))
        self.check_all(['acosh'], lambda n, x: torch.acosh(x), dtypes=FLOATS, low=1.1, high=3)

    def test_functions_of_one_tensor_in_place(self):
        self.check_all(IN_PLACE, lambda n, x: getattr(x.clone(), n + '_')(), dtypes=FLOATS, low=1.1, high=3)

    def test_activations(self):
        more = {'glu': (-1,), 'threshold': (0.5, 2.0), 'softmax': (-1,), 'log_softmax': (-1,)}
        for name in ACTIVATIONS:
            for dtype in FLOATS:
                for x in self.layouts(dtype, low=-3, high=3)[:4]:
                    weight = (torch.tensor([0.25], dtype=x.dtype),) if name == 'prelu' else ()
                    self.assertTrue(self.check(lambda x, *w: getattr(F, name)(x, *w, *more.get(name, ())), x, *weight, name=f'{name} {dtype}'))

    def test_activations_in_place(self):
        for name in ['elu', 'hardtanh', 'leaky_relu', 'hardswish', 'hardsigmoid', 'mish', 'relu', 'silu']:
            for x in self.layouts('float32', low=-3, high=3)[:2]:
                self.assertTrue(self.check(lambda x: getattr(F, name)(x.clone(), inplace=True), x, name=name))

    def test_operators_that_only_torch_npu_has(self):
        import torch_npu
        x, w = torch.randn(3, 4, 6), torch.rand(6) + 0.5
        definitions = [
            (lambda x, w: torch_npu.npu_rms_norm(x, w, 1e-6)[0], lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w),
            (lambda x, w: torch_npu.npu_swiglu(x * w), lambda x, w: F.silu((x * w)[..., :3]) * (x * w)[..., 3:]),
            (lambda x, w: torch_npu.npu_gelu(x * w, approximate='tanh'), lambda x, w: F.gelu(x * w, approximate='tanh'))]
        self.assertEqual(torch_npu.npu_dtype_cast(x.npu(), torch.float16).cpu().tolist(), x.half().tolist())
        for theirs, definition in definitions:
            self.gradients(lambda x, w: (theirs if x.device.type == 'npu' else definition)(x, w), x, w)

    def test_gradients_of_activations(self):
        more = {'glu': (-1,), 'threshold': (0.5, 2.0), 'softmax': (-1,), 'log_softmax': (-1,)}

        def gradient(name, x, seed):
            x = x.detach().requires_grad_()
            getattr(F, name)(x, *more.get(name, ())).backward(seed)
            return x.grad
        for name in ACTIVATIONS:
            if name == 'prelu':
                continue
            for x in self.layouts('float32', low=-3, high=3)[:2]:
                seed = torch.rand(getattr(F, name)(x, *more.get(name, ())).shape)
                self.assertTrue(self.check(lambda x, s: gradient(name, x, s), x, seed, name=name))

    def test_functions_of_two_tensors_with_broadcasts(self):
        shapes = [((4, 6), (4, 6)), ((4, 6), (6,)), ((4, 1), (1, 6)), ((4, 6), ()), ((0, 6), (6,))]
        for name in BINARY:
            compared = 0
            for dtype in ALL:
                for left, right in shapes:
                    a, b = self.value(left, dtype), self.value(right, dtype)
                    compared += self.check(getattr(torch, name), a, b, name=f'{name} {dtype} {left} {right}')
                    compared += self.check(getattr(torch, name), a.t() if a.dim() == 2 else a, b.t() if b.dim() == 2 else self.value((), dtype), name=f'{name} transposed')
            self.assertGreater(compared, 0, name)
        for mode in ['trunc', 'floor']:
            self.check(lambda a, b: torch.div(a, b, rounding_mode=mode), self.value((4, 6), 'float32'), self.value((6,), 'float32'))
            self.check(lambda a: torch.div(a, 0.3, rounding_mode=mode), self.value((4, 6), 'float32'))
            self.check(lambda a, b: a.clone().div_(b, rounding_mode=mode), self.value((4, 6), 'float32'), self.value((6,), 'float32'))
            self.check(lambda a: a.clone().div_(0.3, rounding_mode=mode), self.value((4, 6), 'float32'))

    def test_mixed_dtypes(self):
        for name in ['add', 'mul', 'sub', 'div', 'lt', 'maximum']:
            for a in ALL:
                for b in ALL:
                    self.check(getattr(torch, name), self.value((3, 4), a), self.value((4,), b), name=f'{name} {a} {b}', tolerance=3e-2)

    def test_functions_of_a_tensor_and_a_number(self):
        for name in SCALAR:
            compared = sum(self.check(lambda x: getattr(torch, name)(x, number), x, name=f'{name} {dtype} {number}')
                           for dtype in ALL for number in (2, 0.5) for x in self.layouts(dtype))
            self.assertGreater(compared, 0, name)
        self.check(lambda x: (2.0 ** x, 3 % x, 2 - x, 1 / x, torch.tensor(2.0) + x), self.value((4, 6), 'float32'))
        self.check(lambda x: (torch.round(x, decimals=1), x.clone().clamp_max_(0.5), torch.cumprod(x, 1), torch.clamp_max(x, 0.5)), self.value((4, 6), 'float32'))
        self.check(lambda x, y: (torch.clamp_min(x, y), torch.clamp_max(x, y)), self.value((4, 6), 'float32'), self.value((6,), 'float32'))

    def test_functions_of_two_arguments_in_place(self):
        for name in BINARY_IN_PLACE:
            compared = 0
            for dtype in FLOATS + INTEGERS:
                for other in [self.value((6,), dtype), 2]:
                    compared += self.check(lambda a, b: getattr(a.clone(), name + '_')(b), self.value((4, 6), dtype), other, name=f'{name}_ {dtype}')
                    compared += self.check(lambda a, b: getattr(a.t(), name + '_')(b), self.value((6, 4), dtype), other, name=f'{name}_ {dtype} transposed')
            self.assertGreater(compared, 0, name)

    def test_functions_of_three_tensors(self):
        for dtype in FLOATS:
            a, b, c = self.value((4, 6), dtype), self.value((6,), dtype), self.value((4, 1), dtype)
            mask = self.value((4, 6), 'bool')
            for f in [lambda a, b, c: torch.addcmul(a, b, c, value=0.5), lambda a, b, c: torch.addcdiv(a, b, c, value=0.5),
                      lambda a, b, c: a.clone().addcmul_(b, c, value=2), lambda a, b, c: a.clone().addcdiv_(b, c), torch.lerp,
                      lambda a, b, c: a.clone().lerp_(b.expand(4, 6), 0.25), lambda a, b, c: torch.lerp(a, b.expand(4, 6), 0.25),
                      lambda a, b, c: a.clone().lerp_(b.expand(4, 6), c.expand(4, 6)),
                      lambda a, b, c: torch.clamp(a, 0.3, 0.6), lambda a, b, c: torch.clamp(a, min=b, max=b + 0.1), lambda a, b, c: a.clone().clamp_(0.2, 0.5),
                      lambda a, b, c: torch.nan_to_num(torch.log(a - 0.5), 1.0, 2.0, 3.0), lambda a, b, c: torch.log(a - 0.5).nan_to_num_()]:
                self.assertTrue(self.check(f, a, b, c))
            for f in [lambda a, b, m: torch.where(m, a, b), lambda a, b, m: a.masked_fill(m, 2.0), lambda a, b, m: a.clone().masked_fill_(m, b[0]),
                      lambda a, b, m: a.clone().masked_scatter_(m, b.repeat(4)), lambda a, b, m: a[m], lambda a, b, m: torch.masked_select(b, m),
                      lambda a, b, m: torch.nonzero(m), lambda a, b, m: torch.equal(a, b.expand(4, 6))]:
                self.assertTrue(self.check(f, a, b, mask))

    def test_conversions_between_dtypes(self):
        for a in ALL:
            for b in ALL:
                for x in self.layouts(a):
                    self.assertTrue(self.check(lambda x: x.to(getattr(torch, b)), x, name=f'{a} to {b}'))
                    if a != 'bool':
                        self.check(lambda x: torch.ops.aten._to_copy(x, dtype=getattr(torch, b)), x)

    def test_values_without_tensors(self):
        import torch as t
        for f in [lambda d: t.arange(5, device=d), lambda d: t.arange(1, 2, 0.25, device=d), lambda d: t.linspace(0, 1, 5, device=d), lambda d: t.eye(3, 4, device=d),
                  lambda d: t.ones(2, 3, device=d), lambda d: t.full((2,), 7, device=d), lambda d: t.zeros(2, 3, device=d).fill_diagonal_(2.0),
                  lambda d: t.empty(3, device=d).fill_(t.tensor(2.0, device=d)), lambda d: t.range(1, 3, device=d), lambda d: t.zeros(0, device=d)]:
            torch.testing.assert_close(f('npu').cpu(), f('cpu'))

    def test_random_values_have_their_distributions(self):
        n = 20000
        for x, mean, deviation in [(torch.randn(n, device='npu'), 0, 1), (torch.rand(n, device='npu'), 0.5, 0.2887),
                                   (torch.empty(n, device='npu').uniform_(2, 4), 3, 0.577), (torch.empty(n, device='npu').normal_(1, 2), 1, 2),
                                   (torch.empty(n, device='npu').bernoulli_(0.25), 0.25, 0.433), (torch.normal(torch.ones(n, device='npu'), 2.0), 1, 2),
                                   (torch.bernoulli(torch.full((n,), 0.25, device='npu')), 0.25, 0.433), (torch.randint(0, 10, (n,), device='npu').float(), 4.5, 2.872),
                                   (F.dropout(torch.ones(n, device='npu'), 0.5), 1, 1),
                                   (torch.normal(1.0, torch.full((n,), 2.0, device='npu')), 1, 2), (torch.normal(1.0, 2.0, (n,), device='npu'), 1, 2),
                                   (torch.normal(torch.ones(n, device='npu'), torch.full((n,), 2.0, device='npu')), 1, 2)]:
            x = x.cpu()
            self.assertLess(abs(x.mean().item() - mean), 5 * deviation / n**0.5)
            self.assertLess(abs(x.std().item() - deviation), 0.05 * deviation)
        self.assertEqual(sorted(torch.randperm(50, device='npu').cpu().tolist()), list(range(50)))
        draws = torch.multinomial(torch.tensor([0.0, 1.0, 3.0], device='npu'), 1000, replacement=True).cpu()
        self.assertEqual((draws.min().item(), draws.max().item(), 600 < (draws == 2).sum().item() < 900), (1, 2, True))

    def test_random_values_of_a_graph_are_those_without_it(self):
        n, weights = 1000, torch.tensor([0.0, 1.0, 3.0], device='npu')
        for f in [lambda: torch.empty(n, device='npu').uniform_(2, 4), lambda: torch.empty(n, device='npu').normal_(1, 2),
                  lambda: torch.empty(n, device='npu').random_(0, 10), lambda: F.dropout(torch.ones(n, device='npu'), 0.5),
                  lambda: torch.multinomial(weights, 50, replacement=True)]:
            torch.npu.manual_seed(3)
            without = [f().cpu() for _ in range(2)]
            torch.npu.manual_seed(3)
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph): drawn = f()
            for expected in without:
                graph.replay()
                self.assertTrue(torch.equal(drawn.cpu(), expected))
            self.assertFalse(torch.equal(*without))

    def test_reductions(self):
        for dtype in FLOATS + ('int64', 'bool'):
            for x in self.layouts(dtype)[:4]:
                for f in [torch.sum, lambda x: x.sum(0), lambda x: x.sum((0, -1), keepdim=True), torch.mean, lambda x: x.mean(1), torch.max, torch.min,
                          lambda x: torch.max(x, 1), lambda x: torch.min(x, -1, keepdim=True), lambda x: torch.amax(x, (0, 1)), lambda x: torch.amin(x, 0), torch.aminmax,
                          lambda x: torch.argmax(x), lambda x: torch.argmax(x, 1), lambda x: torch.argmin(x, 0), torch.any, torch.all, lambda x: torch.any(x, 1),
                          lambda x: torch.all(x, 0), torch.prod, lambda x: torch.prod(x, 1), lambda x: torch.cumsum(x, 1), lambda x: torch.cumprod(x, 0), torch.nansum,
                          lambda x: torch.sort(x, stable=True, dim=1), lambda x: torch.sort(x, stable=True, dim=0, descending=True)[0], lambda x: torch.topk(x, 2, dim=1)[0],
                          lambda x: torch.flip(x, (0,)), lambda x: torch.roll(x, (1, 2), (0, 1)), lambda x: x.repeat(2, 1, 1),
                          lambda x: torch.repeat_interleave(x, 2), lambda x: torch.repeat_interleave(x, 2, dim=1)]:
                    self.check(f, x, name=f'{dtype} {tuple(x.shape)}', tolerance={'float16': 1e-2, 'bfloat16': 1e-1}.get(dtype))
        x = self.value((4, 6), 'float32')
        self.assertTrue(self.check(lambda x: torch.ops.aten.norm(x, 2.0, [1], True), x))
        self.assertTrue(self.check(lambda x: torch.dot(x[0], x[1]), x))
        for f in [lambda x: torch.std(x, 1), lambda x: torch.var(x, 0, correction=0), lambda x: torch.var_mean(x, 1), lambda x: torch.std_mean(x, 1), torch.norm,
                  lambda x: torch.norm(x, 1, 1), lambda x: torch.linalg.vector_norm(x, 3, 1), torch.linalg.vector_norm, lambda x: torch.logsumexp(x, 1),
                  lambda x: torch.trace(x[:, :4]), lambda x: torch.tril(x), lambda x: torch.triu(x, 1), lambda x: x.clone().tril_(-1), lambda x: x.clone().triu_(1),
                  lambda x: torch.bincount((x * 10).long().flatten(), minlength=12)]:
            self.assertTrue(self.check(f, x))

    def test_moving_elements(self):
        rows, index = torch.tensor([2, 0, 2]), torch.tensor([[0, 1], [2, 0], [3, 3]])
        for dtype in ALL:
            a, b = self.value((4, 6), dtype), self.value((3, 2), dtype)
            for f in [lambda a, r, i, b: torch.cat([a, a.t().reshape(4, 6)], 1), lambda a, r, i, b: torch.stack([a, a]), lambda a, r, i, b: torch.index_select(a, 0, r),
                      lambda a, r, i, b: torch.gather(a, 0, i), lambda a, r, i, b: a[r], lambda a, r, i, b: a[r, r], lambda a, r, i, b: a[:, r], lambda a, r, i, b: torch.take(a, i),
                      lambda a, r, i, b: torch.scatter(a, 1, i, b), lambda a, r, i, b: a.clone().scatter_(1, i, b), lambda a, r, i, b: torch.scatter(a, 1, i, 1),
                      lambda a, r, i, b: a.clone().scatter_(1, i, 1), lambda a, r, i, b: torch.scatter_add(a, 1, i, b), lambda a, r, i, b: torch.index_add(a, 0, r[:2], a[:2]),
                      lambda a, r, i, b: torch.index_copy(a, 0, r[:2], a[2:]), lambda a, r, i, b: a.clone().index_copy_(0, r[:2], a[2:]),
                      lambda a, r, i, b: torch.index_fill(a, 0, r, 1), lambda a, r, i, b: a.clone().index_fill_(1, r, 1),
                      lambda a, r, i, b: a.clone().index_put_((r, r), b[:, 0], accumulate=dtype in FLOATS),
                      lambda a, r, i, b: torch.constant_pad_nd(a, (1, 2, 0, 1), 3), lambda a, r, i, b: torch.split(a, [1, 2, 3], 1),
                      lambda a, r, i, b: torch.split_with_sizes_copy(a, [1, 2, 3], 1), lambda a, r, i, b: F.one_hot(i, 5), lambda a, r, i, b: a.t().contiguous().view(-1)]:
                self.check(f, a, rows, index, b, name=dtype)

    def test_products_of_matrices(self):
        for dtype in FLOATS:
            a, b, c = self.value((5, 4), dtype), self.value((4, 3), dtype), self.value((3,), dtype)
            x, y = self.value((2, 5, 4), dtype), self.value((2, 4, 3), dtype)
            for f in [lambda a, b, c, x, y: a @ b, lambda a, b, c, x, y: torch.mm(b.t(), a.t()), lambda a, b, c, x, y: torch.addmm(c, a, b, beta=0.5, alpha=2),
                      lambda a, b, c, x, y: (a @ b).addmm_(a, b), lambda a, b, c, x, y: torch.bmm(x, y), lambda a, b, c, x, y: x @ y, lambda a, b, c, x, y: x @ b,
                      lambda a, b, c, x, y: torch.baddbmm(c, x, y), lambda a, b, c, x, y: torch.addbmm(c, x, y), lambda a, b, c, x, y: b @ c, lambda a, b, c, x, y: c @ c,
                      lambda a, b, c, x, y: torch.addmv(b @ c, b, c, beta=2), lambda a, b, c, x, y: F.linear(x, b.t(), c), lambda a, b, c, x, y: torch.addr(a @ b, a[:, 0], c),
                      lambda a, b, c, x, y: a[:0] @ b, lambda a, b, c, x, y: torch.einsum('bij,jk->bik', x, b), lambda a, b, c, x, y: torch.mv(b, c)]:
                self.assertTrue(self.check(f, a, b, c, x, y, tolerance={'float16': 2e-2, 'bfloat16': 1e-1}.get(dtype), name=dtype))

    def gradients(self, function, *tensors, tolerance=None, train=True):
        """Compares the result and the gradients of function(tensors)."""
        def run(*tensors):
            given = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]
            result = function(*given)
            result.backward(torch.linspace(0.5, 1.5, result.numel(), device=result.device, dtype=result.dtype).view_as(result))
            return [result.detach()] + [t.grad for t in given if t.grad is not None]
        self.assertTrue(self.check(run, *tensors, tolerance=tolerance, name=str([tuple(t.shape) for t in tensors])))

    def test_layers_and_their_gradients(self):
        v = self.value
        for dtype, tolerance in [('float32', None), ('float16', 3e-2), ('bfloat16', 2e-1)]:
            image, kernel, bias = v((2, 4, 7, 6), dtype), v((6, 4, 3, 3), dtype), v((6,), dtype)
            for options in [{}, {'padding': 1, 'stride': 2}, {'dilation': 2}]:
                self.gradients(lambda x, w, b: F.conv2d(x, w, b, **options), image, kernel, bias, tolerance=tolerance)
            self.gradients(lambda x, w: F.conv2d(x, w, groups=4), image, v((4, 1, 3, 3), dtype), tolerance=tolerance)
            self.gradients(lambda x, w: F.conv_transpose2d(x, w, stride=2), image, v((4, 3, 2, 2), dtype), tolerance=tolerance)
            self.gradients(lambda x, w: F.conv1d(x, w), v((2, 4, 9), dtype), v((5, 4, 3), dtype), tolerance=tolerance)
            self.gradients(lambda x, w, b: F.layer_norm(x, (6,), w, b), v((3, 4, 6), dtype), v((6,), dtype), v((6,), dtype), tolerance=tolerance)
            self.gradients(lambda x, w, b: F.group_norm(x, 2, w, b), image, v((4,), dtype), v((4,), dtype), tolerance=tolerance)
            for mode in 'reflect', 'replicate', 'circular':
                for shape in (2, 4, 9), (2, 4, 7, 6), (1, 2, 4, 5, 3):
                    self.gradients(lambda x: F.pad(x, (2, 1) * (len(shape) - 2), mode), v(shape, dtype), tolerance=tolerance)
            self.gradients(lambda x: F.max_pool2d(x, 3, 2, 1), torch.rand(2, 4, 7, 6).to(image.dtype), tolerance=tolerance)
            self.gradients(lambda x: F.avg_pool2d(x, 3, 2, 1), image, tolerance=tolerance)
            self.gradients(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), image, tolerance=tolerance)
            self.gradients(lambda x: F.adaptive_avg_pool2d(x, 1), image, tolerance=tolerance)
            self.gradients(lambda w, i: F.embedding(i, w, padding_idx=1), v((5, 3), dtype), torch.tensor([[0, 1, 4], [4, 4, 2]]), tolerance=tolerance)
        for function in [torch.sigmoid, torch.tanh]:
            self.gradients(function, v((4, 6), 'float32'))
        image = v((2, 4, 6, 6), 'float32')
        self.gradients(lambda x: F.interpolate(x, (9, 9), mode='nearest'), image)
        self.gradients(lambda x: F.interpolate(x, (9, 9), mode='bilinear', align_corners=True), image)

    def test_batch_norm_and_its_running_statistics(self):
        for dtype, tolerance in [('float32', None), ('float16', 3e-2), ('bfloat16', 1e-1)]:
            for training in [True, False]:
                def norm(x, w, b, mean, variance):
                    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
                    y = F.batch_norm(x, mean, variance, w, b, training=training, momentum=0.3)
                    y.backward(torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y).to(y.dtype))
                    return y.detach(), x.grad, w.grad, b.grad
                self.assertTrue(self.check(norm, self.value((4, 3, 5, 5), dtype), torch.rand(3), torch.rand(3), torch.rand(3), torch.rand(3) + 1, tolerance=tolerance))

    def test_losses_and_their_gradients(self):
        logits, target, p, q = torch.randn(6, 5), torch.tensor([0, 4, -100, 2, 1, 3]), self.value((6, 5), 'float32'), self.value((6, 5), 'float32')
        for reduction in ['mean', 'sum', 'none']:
            kind = {'reduction': reduction}
            self.gradients(lambda x, t: F.cross_entropy(x, t, **kind), logits, target)
            self.gradients(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, **kind), logits, target)
            self.gradients(lambda x, t: F.cross_entropy(x, t, **kind), torch.randn(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3)))
            self.gradients(lambda x, t, w: F.nll_loss(F.log_softmax(x, 1), t, w.detach(), **kind), logits, target, torch.rand(5))
            for loss in [F.mse_loss, F.l1_loss, F.smooth_l1_loss]:
                self.gradients(lambda x, y: loss(x, y.detach(), **kind), p, q)
            self.gradients(lambda x, y: F.binary_cross_entropy(x, y.detach(), **kind), p, q)
            self.gradients(lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach(), **kind), logits, q)
            self.gradients(lambda x, y: F.kl_div(x, y.detach(), **kind), p.log(), q)

    def test_attention_and_its_gradients(self):
        for dtype, tolerance in [('float32', None), ('float16', 2e-2), ('bfloat16', 1e-1)]:
            q, k, v = (torch.randn(2, 4, n, 8).to(getattr(torch, dtype)) for n in (5, 7, 7))
            mask = torch.rand(2, 1, 5, 7) < 0.7
            mask[..., 0] = True
            self.gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v, tolerance=tolerance)
            self.gradients(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, mask, tolerance=tolerance)
            self.gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), k.clone(), k, v, tolerance=tolerance)
        import torch_npu
        for layout, axes in [('BNSD', (0, 1, 2, 3)), ('BSND', (0, 2, 1, 3)), ('BSH', (0, 2, 1, 3)), ('SBH', (2, 0, 1, 3))]:
            for attention in [torch_npu.npu_fusion_attention, torch_npu.npu_fusion_attention_v2]:
                def attend(q, k, v):
                    if q.device.type == 'cpu':
                        return F.scaled_dot_product_attention(q, k, v).permute(axes)
                    q, k, v = (t.permute(axes) if len(layout) == 4 else t.permute(axes).flatten(2) for t in (q, k, v))
                    return attention(q, k, v, 4, layout, scale=8**-0.5)[0].unflatten(-1, (-1, 8)) if len(layout) == 3 else attention(q, k, v, 4, layout, scale=8**-0.5)[0]
                self.gradients(attend, *(torch.randn(2, 4, 6, 8) for _ in range(3)), tolerance=1e-4)

    def test_lists_of_tensors(self):
        shapes = [(3,), (2, 4), (0,), ()]
        for dtype in FLOATS:
            a, b, c = ([self.value(s, dtype) for s in shapes] for _ in range(3))
            n = len(shapes)

            def on_lists(f):
                return lambda *ts: f(list(ts[:n]), list(ts[n:2 * n]), list(ts[2 * n:]))

            def changed(f):
                return lambda a, b, c: (f(a, b, c), a)[1]
            functions = [lambda a, b, c, k=k: getattr(torch, '_foreach_' + k)(a) for k in FOREACH]
            for k in ['add', 'sub', 'mul', 'div', 'pow', 'maximum', 'minimum']:
                functions += [lambda a, b, c, k=k, o=o: getattr(torch, '_foreach_' + k)(a, o) for o in (2.0, [1.0, 2.0, 3.0, 4.0])]
                functions += [lambda a, b, c, k=k: getattr(torch, '_foreach_' + k)(a, b), changed(lambda a, b, c, k=k: getattr(torch, f'_foreach_{k}_')(a, 2.0))]
            functions += [lambda a, b, c: torch._foreach_add(a, b, alpha=0.5), lambda a, b, c: torch._foreach_sub(a, b, alpha=0.5), changed(lambda a, b, c: torch._foreach_zero_(a)),
                          lambda a, b, c: torch._foreach_norm(a), lambda a, b, c: torch._foreach_lerp(a, b, c), lambda a, b, c: torch._foreach_lerp(a, b, 0.25),
                          lambda a, b, c: torch._foreach_pow(2.0, a), changed(lambda a, b, c: torch._foreach_copy_(a, b))]
            for k in ['addcmul', 'addcdiv']:
                functions += [lambda a, b, c, k=k: getattr(torch, '_foreach_' + k)(a, b, c, 0.5), lambda a, b, c, k=k: getattr(torch, '_foreach_' + k)(a, b, c, [1.0, 2.0, 3.0, 4.0]),
                              changed(lambda a, b, c, k=k: getattr(torch, f'_foreach_{k}_')(a, b, c, 0.5)),
                              lambda a, b, c, k=k: getattr(torch, '_foreach_' + k)(a, b, c, torch.tensor([1.0, 2.0, 3.0, 4.0]))]
            for f in functions:
                self.check(on_lists(f), *a, *b, *c, name=dtype)

    def test_loss_scaling(self):
        def unscale(a, b, found, inverse):
            torch._amp_foreach_non_finite_check_and_unscale_([a, b], found, inverse)
            return found
        good, bad = torch.tensor([2.0, 4.0]), torch.tensor([1.0, float('inf')])
        for second in [good, bad]:
            self.assertTrue(self.check(unscale, good.clone(), second.clone(), torch.zeros(1), torch.tensor([0.5])))
        for found in [0.0, 1.0]:
            self.assertTrue(self.check(lambda s, t, f: torch._amp_update_scale_(s, t, f, 2.0, 0.5, 3), torch.tensor([8.0]), torch.tensor([2], dtype=torch.int32),
                                       torch.tensor([found])))

    def test_fused_adamw(self):
        for amsgrad in [False, True]:
            def steps(w):
                w = torch.nn.Parameter(w.clone())
                optimizer = torch.optim.AdamW([w], lr=0.1, weight_decay=0.01, amsgrad=amsgrad, fused=True)
                for _ in range(3):
                    optimizer.zero_grad()
                    (w * w).sum().backward()
                    optimizer.step()
                return w.detach()
            self.assertTrue(self.check(steps, torch.linspace(-1, 1, 7)))

    def test_fused_sgd(self):
        for options in [{}, {'weight_decay': 0.01}, {'nesterov': True}, {'dampening': 0.5}, {'maximize': True}]:
            def steps(w):
                w = torch.nn.Parameter(w.clone())
                optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9, fused=True, **options)
                for _ in range(3):
                    optimizer.zero_grad()
                    (w * w).sum().backward()
                    optimizer.step()
                return w.detach()
            self.assertTrue(self.check(steps, torch.linspace(-1, 1, 7)), options)

    def test_zz_every_operator_of_the_table_was_compared(self):
        """The last test: an operator that no test above has launched is not compared with anything."""
        self.assertEqual(sorted(exported() - called() - NOT_CALLED), [])
        self.assertEqual(sorted(NOT_CALLED - exported()) + sorted(NOT_CALLED & called()), [])


# torch_npu only checks whether aclnnLogSigmoid exists, and then calls aclnnLogSigmoidForward.
NOT_CALLED = {'aclnnLogSigmoid'}


if __name__ == '__main__':
    environment.main()
