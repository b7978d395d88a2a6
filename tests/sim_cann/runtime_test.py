"""torch_npu on the runtime of sim_cann: memory, copies, streams, events, errors."""
import unittest

import environment

START = 'import torch, torch_npu\n'


class Runtime(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch_npu  # noqa: F401  once for all scripts

    def test_a_program_ends_in_order(self):
        text = START + '''
x = torch.ones(2, device='npu')
torch.npu.synchronize()
with torch.npu.stream(torch.npu.Stream()):
    y = x + 1
torch.npu.synchronize()
print(y.cpu().tolist())
'''
        status, out, err = environment.program(text)
        self.assertEqual((status, out), (0, '[2.0, 2.0]\n'), err)

    def output(self, text, **variables):
        status, out, err = environment.script(START + text, **variables)
        self.assertEqual(status, 0, err)
        return out.split('\n')[:-1]

    def failure(self, text, **variables):
        """stderr of a script that must end with an error, but after it printed `before`."""
        status, out, err = environment.script(START + text, **variables)
        self.assertIn('before', out, err)
        self.assertNotEqual(status, 0, out)
        return err

    def test_devices_and_memory_of_a_chip(self):
        text = '''
x = torch.zeros(1 << 20, device='npu:1')
free, total = torch.npu.mem_get_info(1)
print(torch.npu.device_count(), torch.npu.get_device_name(1), total >> 30, total - free >= 4 << 20, torch.npu.mem_get_info(0)[0] >> 30)
'''
        self.assertEqual(self.output(text, SIM_CANN_DEVICES='2', SIM_CANN_SOC='910B4'), ['2 Ascend910B4 32 True 32'])

    def test_copies_keep_values_layouts_and_dtypes(self):
        text = '''
for dtype in [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]:
    x = (torch.arange(24).reshape(2, 3, 4) % 7 - 3).to(dtype)
    for y in [x, x.transpose(0, 2), x[:, 1:, ::2], x[0, 0, 0], x[:0], x.expand(2, 2, 3, 4)]:
        assert torch.equal(y.npu().cpu(), y) and torch.equal(y.contiguous().npu().to('cpu', torch.float32), y.float()), (dtype, y.shape)
a = torch.arange(6.)
b = torch.zeros(6, device='npu')
b.copy_(a.pin_memory(), non_blocking=True)
b[::2] = 7
print(b.cpu().tolist(), b.clone().cpu().sum().item())
'''
        self.assertEqual(self.output(text), ['[7.0, 1.0, 7.0, 3.0, 7.0, 5.0] 30.0'])

    def test_out_of_memory_is_torch_npus_error_and_can_be_survived(self):
        text = '''
x = torch.ones(1 << 26, device='npu')
try:
    y = torch.ones(1 << 26, device='npu')
except torch.OutOfMemoryError as e:
    print('out of memory' in str(e), '512.00 MiB' in str(e), torch.npu.memory_allocated() >> 20)
del x
torch.npu.empty_cache()
print(torch.ones(1 << 25, device='npu').sum().item() == 1 << 25)
'''
        self.assertEqual(self.output(text, SIM_CANN_HBM='0.5'), ['True True 256', 'True'])

    def test_host_access_to_device_memory_is_a_fault_that_names_it(self):
        text = '''
import ctypes
x = torch.ones(4, device='npu')
torch.npu.synchronize()
print('before', flush=True)
ctypes.string_at(x.data_ptr(), 16)
'''
        self.assertIn('sim_cann: the host accessed memory of npu:0 at 0x', self.failure(text))

    def test_an_operator_that_is_missing_is_named(self):
        text = '''
print('before', flush=True)
torch.npu.synchronize()
x = torch.randn(1, 1, 8, 8, 8, device='npu')
torch.nn.functional.grid_sample(x, torch.zeros(1, 2, 2, 2, 3, device='npu')).cpu()
'''
        self.assertRegex(self.failure(text), 'GridSampler3D')

    def test_a_failing_operator_is_reported_with_its_tensors_at_the_next_synchronisation(self):
        text = '''
x = torch.ones(2, 3, device='npu')
index = torch.tensor([5], device='npu')
print('before', flush=True)
torch.index_select(x, 1, index)
torch.npu.synchronize()
'''
        self.assertRegex(self.failure(text), r'aclnnIndexSelect\(Float\[2, 3\], Long\[1\], Float\[2, 1\]\)')

    def test_fp64_and_bf16_are_refused_where_a_chip_has_none(self):
        text = '''
x = torch.ones(2, dtype=torch.{dtype}).npu()
print('before', flush=True)
(x * x).cpu()
'''
        self.assertRegex(self.failure(text.replace('{dtype}', 'float64')), r'aclnnMul\(Double\[2\].*Ascend910B1')
        self.assertRegex(self.failure(text.replace('{dtype}', 'bfloat16'), SIM_CANN_SOC='910A'), r'aclnnMul\(BFloat16\[2\].*Ascend910A')

    def test_streams_run_beside_each_other_and_events_order_them(self):
        text = '''
import ctypes, os
x = torch.zeros(4, device='npu')
side = torch.npu.Stream()
torch.npu.synchronize()
# A stream that waits until the host lets it go: a reader that does not wait for it reads the old value, always.
release, blocked = os.pipe(), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(release[0], 1))
ctypes.CDLL('libascendcl.so').aclrtLaunchHostFunc(ctypes.c_void_p(side.npu_stream), blocked, None)
with torch.npu.stream(side):
    x.fill_(1)
    written = side.record_event()
print(x.cpu().tolist(), side.query(), written.query())
torch.npu.current_stream().wait_event(written)
y = x + 1
os.write(release[1], b'x')
print(y.cpu().tolist(), written.query())
'''
        self.assertEqual(self.output(text), ['[0.0, 0.0, 0.0, 0.0] False False', '[2.0, 2.0, 2.0, 2.0] True'])

    def test_a_chip_that_saturates_gives_its_largest_number(self):
        text = '''
x = torch.tensor([60000., -60000., 1.], dtype=torch.float16).npu()
print((x * 2).cpu().tolist(), (x - x).cpu().tolist())
'''
        self.assertEqual(self.output(text, SIM_CANN_SOC='910A'), ['[65504.0, -65504.0, 2.0] [0.0, 0.0, 0.0]'])
        self.assertEqual(self.output(text), ['[inf, -inf, 2.0] [0.0, 0.0, 0.0]'])

    def test_the_float_status_stays_until_it_is_cleared(self):
        text = '''
x = torch.tensor([60000.], dtype=torch.float16).npu()
status = torch_npu.npu_alloc_float_status(x)
def read():
    return torch_npu.npu_get_float_status(torch.zeros_like(status)).cpu()[0].item()
seen = [read()]
x * 2
seen += [read(), read()]
torch_npu.npu_clear_float_status(status)
print(seen, read())
'''
        self.assertEqual(self.output(text, SIM_CANN_SOC='910A'), ['[0.0, 1.0, 1.0] 0.0'])

    def test_a_planted_fault_is_an_error_of_its_operator(self):
        text = '''
x = torch.ones(2, device='npu')
y = (x * x).cpu()
print('before', flush=True)
torch.npu.synchronize()
(x * x).cpu()
'''
        self.assertIn('aclnnMul: the fault of SIM_CANN_FAULT', self.failure(text, SIM_CANN_FAULT='aclnnMul:2:fail'))
        status, out, err = environment.script(START + text, SIM_CANN_FAULT='aclnnMul:2:exit')
        self.assertEqual((status, out), (3, 'before\n'), err)

    def test_work_that_waits_for_a_failed_stream_fails_too(self):
        text = '''
x = torch.ones(2, device='npu')
side = torch.npu.Stream()
side.wait_stream(torch.npu.current_stream())
with torch.npu.stream(side): y = x * 2
torch.npu.current_stream().wait_stream(side)
print('before', flush=True)
print((y + 1).cpu())
'''
        self.assertIn('aclnnMuls', self.failure(text, SIM_CANN_FAULT='aclnnMuls:1:fail'))

    def test_random_numbers_follow_the_seed(self):
        text = '''
draws = []
for seed in [1, 1, 2]:
    torch.npu.manual_seed(seed)
    x = torch.randn(1000, device='npu')
    d = torch.nn.functional.dropout(torch.ones(1000, device='npu'), 0.25)
    draws.append(torch.cat([x, d, torch.rand(1000, device='npu')]).cpu())
kept = (draws[0][1000:2000] != 0).float().mean().item()
print(torch.equal(draws[0], draws[1]), torch.equal(draws[0], draws[2]), 0.7 < kept < 0.8, abs(draws[0][:1000].mean().item()) < 0.2)
'''
        self.assertEqual(self.output(text), ['True False True True'])

    def test_a_wrong_setting_is_an_error_that_says_what_is_allowed(self):
        for name, value, allowed in [('SIM_CANN_SOC', '910C9', 'Ascend910B1'), ('SIM_CANN_DEVICES', '0', '1 to 16'), ('SIM_CANN_HBM', 'x', 'GiB'),
                                     ('SIM_CANN_FAULT', 'aclnnMul:2', 'NAME:COUNT:HOW')]:
            with self.subTest(name):
                status, _, err = environment.script(START + "torch.ones(2, device='npu')", **{name: value})
                self.assertEqual(status, 2, err)
                self.assertRegex(err, f'sim_cann: {name}={value}.*{allowed}')


if __name__ == '__main__':
    environment.main()
